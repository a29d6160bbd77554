// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// echoPatience is how long the cache may take to show what this process has written, before it is taken as it is: an API
// server that has been restored from a backup shows it never.
const echoPatience = 10 * time.Second

// echoes are the versions of Machines that this process has written and that its cache does not show yet. Every write
// wakes its Machine, often before the cache has it all. Whoever went by what the cache says then would do everything once
// more, and be told so by a conflict. It is safe for concurrent use, and forgets what has arrived.
type echoes struct {
	lock     sync.Mutex
	expected map[types.NamespacedName]echo
}

type echo struct {
	version string
	at      time.Time
}

func newEchoes() *echoes { return &echoes{expected: map[types.NamespacedName]echo{}} }

// expect is called with what a write has returned.
func (e *echoes) expect(machine *v1alpha1.Machine, now time.Time) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.expected[client.ObjectKeyFromObject(machine)] = echo{version: machine.ResourceVersion, at: now}
}

func (e *echoes) forget(machine types.NamespacedName) {
	e.lock.Lock()
	defer e.lock.Unlock()
	delete(e.expected, machine)
}

// outstanding tells whether a Machine from the cache is older than what this process has written.
func (e *echoes) outstanding(machine *v1alpha1.Machine, now time.Time) bool {
	e.lock.Lock()
	defer e.lock.Unlock()
	key := client.ObjectKeyFromObject(machine)
	expected, found := e.expected[key]
	if !found {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(machine.ResourceVersion, expected.version)
	if err == nil && order < 0 && now.Sub(expected.at) < echoPatience {
		return true
	}
	delete(e.expected, key)
	return false
}
