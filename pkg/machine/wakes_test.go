// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/test"
)

// queued is a process whose Machines are looked at only when they have been put into its queue.
type queued struct {
	*process
	queue      queue
	reconciles int
}

func (w *world) startQueued() *queued {
	w.t.Helper()
	q := &queued{process: w.start(w.client)}
	q.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	w.t.Cleanup(q.queue.ShutDown)
	if err := q.waiting.start(w.t.Context(), q.queue); err != nil {
		w.t.Fatal(err)
	}
	q.listen()
	return q
}

// drain looks at what is in the queue, and at what comes into it meanwhile, until it is empty.
func (q *queued) drain() {
	q.world.t.Helper()
	for q.queue.Len() > 0 {
		request, _ := q.queue.Get()
		if _, err := q.Reconcile(context.Background(), request); err != nil {
			q.world.t.Fatal(err)
		}
		q.queue.Done(request)
		q.reconciles++
	}
}

// ask has every Machine looked at once, as when it is created.
func (q *queued) ask() {
	for _, machine := range q.world.machines() {
		q.queue.Add(reconcile.Request{NamespacedName: ownerOf(&machine).NamespacedName})
	}
	q.drain()
	q.reconciles = 0
}

// rack shows the process a new server.
func (q *queued) rack(name string, labels map[string]string) {
	q.world.t.Helper()
	q.inventory.SetHost(environment.CreateHost(q.world.t, test.AvailableHost(q.world.metal3, name, labels)))
	q.drain()
}

func (w *world) claimed() (count int) {
	for _, machine := range w.machines() {
		if condition(&machine, v1alpha1.ConditionClaimed).Status == metav1.ConditionTrue {
			count++
		}
	}
	return count
}

// TestEveryServerWakesOne: servers come one by one, and 40 Machines wait for them. Were all of them woken by each server,
// that would be 820 reconciles.
func TestEveryServerWakesOne(t *testing.T) {
	const waiting = 40
	w := newWorld(t, 0)
	for n := range waiting {
		w.machine(fmt.Sprintf("m-%02d", n), standAlone)
	}
	q := w.startQueued()
	q.ask()
	for n := range waiting {
		q.rack(fmt.Sprintf("server-%02d", n), nil)
		if claimed := w.claimed(); claimed != n+1 {
			t.Fatalf("%d servers, %d claims: a Machine has been forgotten", n+1, claimed)
		}
	}
	t.Logf("%d Machines, %d servers: %d reconciles", waiting, waiting, q.reconciles)
	if q.reconciles > 2*waiting {
		t.Errorf("%d reconciles for %d servers, want about one for each", q.reconciles, waiting)
	}
}
