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

// expectationsTimeout is how long to wait for the cache to show a write. An API server that is restored from a backup never
// shows it.
const expectationsTimeout = 10 * time.Second

// expectations are the versions of Machines that this process has written and that its cache does not show yet, like the
// controller expectations of kube-controller-manager. Reconciling from the stale cache would repeat the write and fail with
// a conflict. It is safe for concurrent use.
type expectations struct {
	lock     sync.Mutex
	expected map[types.NamespacedName]expectation
}

type expectation struct {
	version string
	since   time.Time
}

func newExpectations() *expectations {
	return &expectations{expected: map[types.NamespacedName]expectation{}}
}

// expect is called with the Machine that a write has returned.
func (e *expectations) expect(machine *v1alpha1.Machine, now time.Time) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.expected[client.ObjectKeyFromObject(machine)] = expectation{version: machine.ResourceVersion, since: now}
}

// forget is called when the Machine no longer exists.
func (e *expectations) forget(machine types.NamespacedName) {
	e.lock.Lock()
	defer e.lock.Unlock()
	delete(e.expected, machine)
}

// satisfied returns whether a Machine from the cache is as new as what this process has written.
func (e *expectations) satisfied(machine *v1alpha1.Machine, now time.Time) bool {
	e.lock.Lock()
	defer e.lock.Unlock()
	key := client.ObjectKeyFromObject(machine)
	expected, found := e.expected[key]
	if !found {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(machine.ResourceVersion, expected.version)
	if err == nil && order < 0 && now.Sub(expected.since) < expectationsTimeout {
		return false
	}
	delete(e.expected, key)
	return true
}
