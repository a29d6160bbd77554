// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// TestNeighboursWithQuotas: a server less of one tenant wakes a Machine of it, although one of another tenant of the
// namespace, which may have no more, has waited longer.
func TestNeighboursWithQuotas(t *testing.T) {
	w := newWorld(t, 0)
	allow := func(name string, servers int64) {
		t.Helper()
		tenant := &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, name)}
		if err := client.IgnoreNotFound(w.client.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant)); err != nil {
			t.Fatal(err)
		}
		tenant.Spec.APIServerEndpoint, tenant.Spec.Quota = "tenant.example.com:6443", &v1alpha1.Quota{Servers: ptr.To(servers)}
		if tenant.ResourceVersion == "" {
			w.create(tenant)
		} else if err := w.client.Update(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	allow("tenant", 0)
	allow("neighbour", 0)
	w.machine("a", nil)
	w.machine("b", func(machine *v1alpha1.Machine) { machine.Spec.TenantClusterRef.Name = "neighbour" })
	q := w.startQueued()
	q.rack("server", nil)
	q.ask()
	if w.claimed() != 0 {
		t.Fatal("nobody may have a server")
	}
	allow("neighbour", 1)
	q.vanished(types.NamespacedName{Namespace: w.tenant, Name: "another"})
	q.drain()
	if w.claimed() != 1 {
		t.Error("the Machine that may have a server has not been woken")
	}
}
