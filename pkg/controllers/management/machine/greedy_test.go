// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// look has the process look at a Machine once, as a worker would.
func (p *process) look(key types.NamespacedName) {
	p.fixture.t.Helper()
	if _, err := p.Reconcile(p.fixture.t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		p.fixture.t.Fatal(err)
	}
}

// other is a Machine of another tenant's namespace.
func (w *fixture) other(namespace, name string) types.NamespacedName {
	return w.machine(name, func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Namespace = namespace
	})
}

// TestPendingMachinesAreBounded: a tenant with a quota of two makes more Machines than may wait. The others are refused, with one write
// each, and no further decision is made about them until there is room.
func TestPendingMachinesAreBounded(t *testing.T) {
	w := newFixture(t, 1)
	update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
		tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(int64(2))}
	})
	p := w.start(w.client)
	const more = 5
	var keys []types.NamespacedName
	for n := range 2 + quota.MorePending + more {
		keys = append(keys, w.machine(fmt.Sprintf("m-%02d", n), nil))
	}
	for range 2 {
		for _, key := range keys {
			p.look(key)
		}
	}
	refused := func() (all []types.NamespacedName) {
		for _, key := range keys {
			if claimed := condition(w.get(key), v1alpha1.ConditionClaimed); claimed.Reason == v1alpha1.ReasonTooManyPending {
				all = append(all, key)
			}
		}
		return all
	}
	before := refused()
	if len(before) != more || before[0] != keys[len(keys)-more] {
		t.Fatalf("refused are %v, want the last %d", before, more)
	}
	if waiting := len(p.scheduler.queue.Keys()); waiting != 2+quota.MorePending {
		t.Errorf("%d Machines are in the queue of the scheduler, want those that are not refused", waiting)
	}
	last := keys[len(keys)-1]
	version := w.get(last).ResourceVersion
	p.look(last)
	if again := w.get(last); again.ResourceVersion != version {
		t.Errorf("the refused Machine was written again: %+v", again.Status)
	}

	// One that waits goes: the next may wait.
	if err := w.client.Delete(t.Context(), w.get(keys[0])); err != nil {
		t.Fatal(err)
	}
	p.look(keys[0])
	p.look(last)
	keys = keys[1:]
	if after := refused(); len(after) != more-1 {
		t.Errorf("refused are %v, want one less", after)
	}

	// The one that gets the server takes it off the room.
	p.inventory.SetHost(&w.hosts()[0])
	p.look(keys[0])
	if oldest := w.get(keys[0]); oldest.Status.HostRef == nil {
		t.Fatalf("the oldest has no server: %+v", oldest.Status)
	}
	p.look(before[0])
	if len(refused()) != more-1 {
		t.Error("a claim made room for one more")
	}
}

// TestBurstsAreNotRefused: a tenant asks for all servers that there are at once.
func TestBurstsAreNotRefused(t *testing.T) {
	const servers = 30
	w := newFixture(t, servers)
	p := w.start(w.client)
	for n := range servers {
		w.machine(fmt.Sprintf("m-%02d", n), nil)
	}
	w.until("all claimed", func() *process { return p }, func() bool {
		for _, machine := range w.machines() {
			if condition(&machine, v1alpha1.ConditionClaimed).Reason == v1alpha1.ReasonTooManyPending {
				t.Fatalf("Machine %s is refused", machine.Name)
			}
			if machine.Status.ProviderID == "" {
				return false
			}
		}
		return true
	})
}

// TestNewMachinesDoNotTakeWhatOthersWaitFor: a server becomes free while a namespace makes Machines without end. It is for the Machine
// of another, which has waited, although a worker looks at a new one first.
func TestNewMachinesDoNotTakeWhatOthersWaitFor(t *testing.T) {
	w := newFixture(t, 0)
	p := w.start(w.client)
	p.listen()
	waits := w.machine("waits", nil)
	p.look(waits)
	p.inventory.SetHost(w.api.CreateHost(t, env.AvailableHost(w.metal3, "server-00", nil)))
	p.look(w.other(w.api.Namespace(t), "new"))
	p.look(waits)
	if machine := w.get(waits); machine.Status.HostRef == nil {
		t.Errorf("the server went to the new Machine: %+v", machine.Status.Conditions)
	}
}

// TestPrecedenceIsBounded: a namespace makes Machines without end, and a server of another is to be installed or released.
func TestPrecedenceIsBounded(t *testing.T) {
	waiting := priorityqueue.New[reconcile.Request]("test")
	defer waiting.ShutDown()
	installing := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "tenant", Name: "installing"}}
	waiting.Add(installing)
	first := claimsFirst()
	create := func(object client.Object) {
		waiting.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}) // what the controller does for each
		first.Create(t.Context(), event.CreateEvent{Object: object}, waiting)
	}
	for n := range 2 * burstOfMachines {
		create(&v1alpha1.Machine{ObjectMeta: metaIn("greedy", fmt.Sprintf("m-%05d", n))})
	}
	create(&v1alpha1.Machine{ObjectMeta: metaIn("tenant", "fresh")})
	before := map[string]int{}
	for next, _ := waiting.Get(); next != installing; next, _ = waiting.Get() {
		before[next.Namespace]++
	}
	// A few are added while the others are.
	if before["greedy"] < burstOfMachines || before["greedy"] > burstOfMachines*3/2 || before["tenant"] != 1 {
		t.Errorf("before the installation come %v", before)
	}
}
