// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
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

// TestNewMachinesDoNotTakeWhatOthersWaitFor: a server becomes free while a namespace makes Machines without end. It is for the Machine
// of another, which has waited, although a worker looks at a new one first.
func TestNewMachinesDoNotTakeWhatOthersWaitFor(t *testing.T) {
	w := newFixture(t, 0)
	p := w.start(w.client)
	p.scheduler.listen()
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
