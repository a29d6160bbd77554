// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// complain has a tenant get a server, call it unhealthy and give it back.
func (d *disks) complain(namespace, name string, running func() *process) types.NamespacedName {
	d.t.Helper()
	key := d.ask(namespace, name)
	d.until("installed", running, func() bool { return d.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	d.edit(key, func(machine *v1alpha1.Machine) {
		machine.ReportNode(reportFault)
	})
	if err := d.client.Delete(d.t.Context(), d.get(key)); err != nil {
		d.t.Fatal(err)
	}
	d.until("released", running, func() bool { return d.get(key) == nil })
	return key
}

func (d *disks) quarantined() (servers []string) {
	d.t.Helper()
	for _, host := range d.hosts() {
		if host.Annotations[v1alpha1.QuarantinedAnnotationKey] != "" {
			servers = append(servers, host.Name)
		}
	}
	return servers
}

// TestQuarantineByAnnotation: tenants that call one server after the other unhealthy take one of ten out of the pool.
// Their own Machines get the others, and what Metal3 says has no less effect for it.
func TestQuarantineByAnnotation(t *testing.T) {
	d := newDisks(t, 10, 2)
	slow := slowFixture{fixture: d.fixture}
	nodeType, greedy := &v1alpha1.NodeType{}, &v1alpha1.TenantCluster{}
	for key, object := range map[client.ObjectKey]client.Object{
		{Name: d.nodeType}: nodeType, {Namespace: d.tenant, Name: "tenant"}: greedy,
	} {
		if err := d.client.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
	}
	nodeType.Spec.OnError, greedy.Spec.Quota = v1alpha1.OnErrorReplace, &v1alpha1.Quota{Servers: ptr.To[int64](2)}
	for _, object := range []client.Object{nodeType, greedy} {
		if err := d.client.Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	manager := d.start(d.client)
	running := func() *process { return manager }
	for n := range 4 {
		d.complain(d.tenant, fmt.Sprintf("m%d", n), running)
	}
	if got := d.quarantined(); len(got) != 1 {
		t.Fatalf("a tenant with two servers at a time has quarantined %v, want one", got)
	}
	if !manager.reported("1 of 10 servers of NodeType " + d.nodeType + " are quarantined on the word of tenants, and more than 1 are not") {
		t.Error("no event says why the others were not quarantined")
	}

	// It may still have two servers.
	for _, name := range []string{"one", "two"} {
		key := d.ask(d.tenant, name)
		d.until("installed", running, func() bool { return d.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	}

	// The other tenant takes no further one out of the pool, and Metal3's errors have a limit of their own.
	d.complain(d.others[0], "other", running)
	if got := d.quarantined(); len(got) != 1 {
		t.Errorf("%v are quarantined, want one for all tenants", got)
	}
	d.hangs = true
	for n := range 2 {
		broken := d.ask(d.others[0], fmt.Sprintf("broken%d", n))
		slow.writing(broken, running)
		slow.fail(broken, bmov1alpha1.ProvisioningError, 1)
		manager.round()
		if !slow.givenUp(broken) || len(d.quarantined()) != 2+n {
			t.Errorf("the broken server %d of the other tenant is not quarantined: %v", n, d.quarantined())
		}
	}
}

// TestFaultyServersComeLast: two of ten servers have a broken GPU. The first one is quarantined; the second one is not, because one suspect
// is the limit. No Machine gets it while others are free, until a node has run on it for an hour.
func TestFaultyServersComeLast(t *testing.T) {
	d := newDisks(t, 10, 1)
	clock := testclock.NewFakePassiveClock(time.Now())
	d.clock = clock
	manager := d.start(d.client)
	running := func() *process { return manager }
	for _, name := range []string{"first", "second"} {
		d.complain(d.tenant, name, running)
	}
	ask := func(name string) (types.NamespacedName, string) {
		key := d.ask(d.tenant, name)
		d.until("installed", running, func() bool { return d.get(key).Status.Phase == v1alpha1.MachineProvisioned })
		return key, d.get(key).Status.HostRef.Name
	}
	giveBack := func(key types.NamespacedName) {
		if err := d.client.Delete(t.Context(), d.get(key)); err != nil {
			t.Fatal(err)
		}
		d.until("released", running, func() bool { return d.get(key) == nil })
	}
	// Again and again, and also by a process that has seen none of it.
	for n := range 3 {
		key, server := ask(fmt.Sprintf("again-%d", n))
		if server != "server-02" {
			t.Errorf("Machine %d gets %s, while servers that were not broken are free; quarantined %v", n, server, d.quarantined())
		}
		giveBack(key)
		manager = d.start(d.client)
	}
	var last types.NamespacedName
	for n := range 8 { // all others
		_, _ = ask(fmt.Sprintf("other-%d", n))
	}
	last, server := ask("last")
	if server != "server-01" {
		t.Fatalf("for want of others a Machine gets %s, want server-01", server)
	}
	d.edit(last, func(machine *v1alpha1.Machine) {
		machine.ReportNode(func(node *v1alpha1.MachineNode) { node.Name = "last" })
	})
	d.until("joined", running, func() bool { return d.get(last).Status.Phase == v1alpha1.MachineJoined })
	if _, faulty := d.hostNamed("server-01").Annotations[v1alpha1.FaultAnnotationKey]; !faulty {
		t.Error("a server that has just joined counts as any other")
	}
	clock.SetTime(clock.Now().Add(time.Hour))
	manager.round()
	if _, faulty := d.hostNamed("server-01").Annotations[v1alpha1.FaultAnnotationKey]; faulty {
		t.Error("after an hour it does not count as any other")
	}
}
