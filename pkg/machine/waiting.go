// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waiting are the Machines that wait for something which no watch maps to them. They are woken all together: which of
// them a server is good for is found out by asking for it, which costs microseconds.
type waiting struct {
	lock     sync.Mutex
	machines map[types.NamespacedName]time.Time
	queue    workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newWaiting() *waiting {
	return &waiting{machines: map[types.NamespacedName]time.Time{}}
}

// start makes wake use the queue of a controller. It is a source of that controller.
func (w *waiting) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.queue = queue
	return nil
}

func (w *waiting) set(machine types.NamespacedName, created time.Time, waits bool) {
	if !waits {
		w.remove(machine)
		return
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	w.machines[machine] = created
}

func (w *waiting) remove(machine types.NamespacedName) {
	w.lock.Lock()
	defer w.lock.Unlock()
	delete(w.machines, machine)
}

// wake puts all Machines that wait into the queue, the oldest first: who has waited longest is served first.
func (w *waiting) wake() {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.queue == nil {
		return
	}
	for _, machine := range w.oldestFirst() {
		w.queue.Add(reconcile.Request{NamespacedName: machine})
	}
}

func (w *waiting) oldestFirst() []types.NamespacedName {
	machines := make([]types.NamespacedName, 0, len(w.machines))
	for machine := range w.machines {
		machines = append(machines, machine)
	}
	slices.SortFunc(machines, func(a, b types.NamespacedName) int {
		if order := w.machines[a].Compare(w.machines[b]); order != 0 {
			return order
		}
		return strings.Compare(a.String(), b.String())
	})
	return machines
}
