// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/scheduling"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// queued is a process that reconciles only Machines that have been put into its queue.
type queued struct {
	*process
	queue      queue
	reconciles int
}

func (w *fixture) startQueued() *queued {
	w.t.Helper()
	q := &queued{process: w.start(w.client)}
	q.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	w.t.Cleanup(q.queue.ShutDown)
	if err := q.scheduler.start(w.t.Context(), q.queue); err != nil {
		w.t.Fatal(err)
	}
	q.scheduler.listen()
	return q
}

// drain schedules, and reconciles what is in the queue and what is added meanwhile, until it is empty.
func (q *queued) drain() {
	q.fixture.t.Helper()
	for q.scheduler.schedulePending(context.Background()); q.queue.Len() > 0; q.scheduler.schedulePending(context.Background()) {
		request, _ := q.queue.Get()
		if _, err := q.Reconcile(context.Background(), request); err != nil {
			q.fixture.t.Fatal(err)
		}
		q.queue.Done(request)
		q.reconciles++
	}
}

// ask reconciles every Machine once, as when it is created.
func (q *queued) ask() {
	for _, machine := range q.fixture.machines() {
		q.queue.Add(reconcile.Request{NamespacedName: hosts.OwnerOf(&machine).NamespacedName})
	}
	q.drain()
	q.reconciles = 0
}

// rack adds a server.
func (q *queued) rack(name string, labels map[string]string) {
	q.fixture.t.Helper()
	q.inventory.SetHost(q.fixture.api.CreateHost(q.fixture.t, env.AvailableHost(q.fixture.metal3, name, labels)))
	q.drain()
}

func (w *fixture) claimed() (count int) {
	for _, machine := range w.machines() {
		if condition(&machine, v1alpha1.ConditionClaimed).Status == metav1.ConditionTrue {
			count++
		}
	}
	return count
}

// TestOneReconcileForEachServer: servers are added one by one, and 40 Machines wait for them. If each server caused a
// reconcile of all of them, that would be 820.
func TestOneReconcileForEachServer(t *testing.T) {
	const waiting = 40
	w := newFixture(t, 0)
	update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
		tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(int64(waiting))}
	})
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
	if q.reconciles > waiting {
		t.Errorf("%d reconciles for %d servers, want about one for each", q.reconciles, waiting)
	}
}

// TestOldestFirst: of the Machines that wait, the oldest gets the next server, whichever is reconciled first.
func TestOldestFirst(t *testing.T) {
	w := newFixture(t, 0)
	w.machine("b-older", standAlone)
	q := w.startQueued()
	q.ask()
	w.machine("a-younger", standAlone)
	q.ask()
	older := w.get(types.NamespacedName{Namespace: w.tenant, Name: "b-older"})
	younger := w.get(types.NamespacedName{Namespace: w.tenant, Name: "a-younger"})
	q.rack("server", nil)
	older, younger = w.get(hosts.OwnerOf(older).NamespacedName), w.get(hosts.OwnerOf(younger).NamespacedName)
	if first := entry(older).Before(entry(younger)); (older.Status.HostRef != nil) != first ||
		(younger.Status.HostRef != nil) == first {
		t.Errorf("created %s and %s: the older has server %v, the younger %v", older.CreationTimestamp, younger.CreationTimestamp,
			older.Status.HostRef, younger.Status.HostRef)
	}
}

func entry(machine *v1alpha1.Machine) *scheduling.Machine[candidate] {
	return &scheduling.Machine[candidate]{Key: hosts.OwnerOf(machine).NamespacedName, Created: machine.CreationTimestamp.Time}
}

// TestAnotherChoice: a Machine could have no server, because the only type has a mistake. It gets one of another type as soon
// as there is one, although that costs more.
func TestAnotherChoice(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.NodeTypeRef, machine.Spec.Resources = nil, env.Resources("cpu", "1")
	})
	nodeType := &v1alpha1.NodeType{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.nodeType}, nodeType); err != nil {
		t.Fatal(err)
	}
	nodeType.Spec.Properties[v1alpha1.PropertySSHKeys] = "none-of-that-name"
	if err := w.client.Update(t.Context(), nodeType); err != nil {
		t.Fatal(err)
	}
	q := w.startQueued()
	for _, host := range w.hosts() {
		q.inventory.SetHost(&host)
	}
	q.ask()
	if machine := w.get(key); machine.Status.HostRef != nil ||
		condition(machine, v1alpha1.ConditionReady).Reason != v1alpha1.ReasonInvalidSpec {
		t.Fatalf("status %+v", machine.Status)
	}
	another := nodeType.DeepCopy()
	another.ObjectMeta = metaName("another-" + w.metal3)
	delete(another.Spec.Properties, v1alpha1.PropertySSHKeys)
	w.create(another)
	q.inventory.SetType(inventory.Profile{Name: another.Name, MadeBy: "provider-" + w.metal3, Namespace: w.metal3,
		Selector: labels.Everything(), Cost: 2,
		Resources: env.Resources("cpu", "8", "memory", "32Gi"), Server: capacity.Server{Resources: env.Resources("cpu", "8", "memory", "32Gi")}})
	q.drain()
	if machine := w.get(key); machine.Status.NodeTypeRef == nil || machine.Status.NodeTypeRef.Name != another.Name {
		t.Errorf("status %+v, want a server of the other type", machine.Status)
	}
}

// TestPinnedMessageFollowsServer: the message of a Machine that is pinned says what is the matter with its server, so it is
// written again when that changes, although the reason stays the same.
func TestPinnedMessageFollowsServer(t *testing.T) {
	w := newFixture(t, 1)
	host := w.hosts()[0]
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: host.Name}
	})
	q := w.startQueued()
	says := func(want string) {
		t.Helper()
		q.drain()
		if message := condition(w.get(key), v1alpha1.ConditionReady).Message; !strings.Contains(message, want) {
			t.Errorf("the Machine says %q, want %q in it", message, want)
		}
	}
	host.Status.Provisioning.State = bmov1alpha1.StateRegistering
	q.inventory.SetHost(&host)
	q.ask()
	says("registering")
	host.Status.OperationalStatus, host.Status.ErrorType = bmov1alpha1.OperationalStatusError, bmov1alpha1.RegistrationError
	q.inventory.SetHost(&host)
	says("registration error")
	host.Status.ErrorType = bmov1alpha1.PowerManagementError
	q.inventory.SetHost(&host)
	says("power management error")
}

// TestClaimedMachinesDoNotWait: a Machine that has its server and waits for user data has watches of its own for that. In
// the scheduling queue, every event would reconcile it.
func TestClaimedMachinesDoNotWait(t *testing.T) {
	w := newFixture(t, 2)
	tenants, standAlones := w.machine("m", nil), w.machine("n", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Bootstrap.DataSecretName = "later"
	})
	manager := w.start(w.client)
	manager.round()
	for _, key := range []types.NamespacedName{tenants, standAlones} {
		if reason := condition(w.get(key), v1alpha1.ConditionReady).Reason; reason != v1alpha1.ReasonWaitingForBootstrapData {
			t.Fatalf("Machine %s: reason %q", key, reason)
		}
	}
	if waiting := manager.scheduler.queue.Keys(); len(waiting) > 0 {
		t.Errorf("in the queue: %v", waiting)
	}
}

// TestNeighboursWithQuotas: when a tenant has a server less, its Machine gets one, although one of another tenant of the
// namespace, which may have no more, has waited longer.
func TestNeighboursWithQuotas(t *testing.T) {
	w := newFixture(t, 0)
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
	allow("neighbour", 1)
	ofNeighbour := func(machine *v1alpha1.Machine) { machine.Spec.TenantClusterRef.Name = "neighbour" }
	first := w.machine("a", ofNeighbour)
	q := w.startQueued()
	q.rack("server-0", nil)
	q.ask()
	for _, host := range w.hosts() {
		q.inventory.SetHost(&host) // the watch shows the claim
	}
	w.machine("b", nil)
	last := w.machine("c", ofNeighbour)
	q.rack("server-1", nil)
	q.ask()
	if w.claimed() != 1 || w.get(first).Status.HostRef == nil {
		t.Fatalf("%d claims, want that of Machine a alone", w.claimed())
	}
	w.edit(first, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
	if err := w.client.Delete(t.Context(), w.get(first)); err != nil {
		t.Fatal(err)
	}
	q.vanished(first)
	q.drain()
	if w.get(last).Status.HostRef == nil {
		t.Error("the Machine that may have a server has got none")
	}
}
