// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// expectationsTimeout limits the wait for the cache to show a write. An API server restored from a backup never does.
const expectationsTimeout = 10 * time.Second

// Expectations are versions of objects of one kind that this process has written and its cache does not show yet, like
// the controller expectations of kube-controller-manager. Reconciling from the stale cache would repeat the write and
// fail with a conflict. The zero value is ready to use, and safe for concurrent use.
type Expectations struct {
	lock     sync.Mutex
	expected map[types.NamespacedName]expectation
}

type expectation struct {
	version string
	since   time.Time
}

// Expect records a write; written is the object that the write returned.
func (e *Expectations) Expect(written client.Object, now time.Time) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.expected == nil {
		e.expected = map[types.NamespacedName]expectation{}
	}
	e.expected[client.ObjectKeyFromObject(written)] = expectation{version: written.GetResourceVersion(), since: now}
}

// Forget drops the expectation of an object that no longer exists.
func (e *Expectations) Forget(key types.NamespacedName) {
	e.lock.Lock()
	defer e.lock.Unlock()
	delete(e.expected, key)
}

// Satisfied reports whether an object from the cache is as new as this process's last write.
func (e *Expectations) Satisfied(cached client.Object, now time.Time) bool {
	e.lock.Lock()
	defer e.lock.Unlock()
	key := client.ObjectKeyFromObject(cached)
	expected, found := e.expected[key]
	if !found {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), expected.version)
	if err == nil && order < 0 && now.Sub(expected.since) < expectationsTimeout {
		return false
	}
	delete(e.expected, key)
	return true
}
