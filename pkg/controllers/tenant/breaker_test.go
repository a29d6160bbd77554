// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// fleet is a tenant's Machines with their NodeClaims, and the collector of Machines.
type fleet struct {
	t          *testing.T
	key        types.NamespacedName
	clock      *clocktesting.FakePassiveClock
	controller *garbagecollection.MachineController
	machines   []*v1alpha1.Machine
	nodeClaims []*karpv1.NodeClaim
}

func newFleet(t *testing.T, size int, provisioned bool) *fleet {
	t.Helper()
	f := &fleet{t: t, key: tenanttest.TenantCluster(t, &environment), clock: clocktesting.NewFakePassiveClock(time.Now())}
	clusters := tenanttest.Clusters(&environment, f.key, &faults.Connection{})
	f.controller = garbagecollection.NewMachineController(f.clock, clusters)
	for i := range size {
		f.add(fmt.Sprintf("m%d-%s", i, f.key.Namespace), provisioned)
	}
	return f
}

func (f *fleet) add(name string, provisioned bool) {
	f.t.Helper()
	nodeClaim := createNodeClaim(f.t, name)
	machine := createMachine(f.t, f.key, name, nodeClaim.UID)
	if provisioned {
		conditions.Set(&machine.Status.Conditions,
			metav1.Condition{Type: v1alpha1.ConditionProvisioned, Status: metav1.ConditionTrue, Reason: "Provisioned"})
		if err := environment.Client.Status().Update(f.t.Context(), machine); err != nil {
			f.t.Fatal(err)
		}
	}
	f.machines, f.nodeClaims = append(f.machines, machine), append(f.nodeClaims, nodeClaim)
}

// vanish deletes the NodeClaims of Machines, as nothing but a mistake does.
func (f *fleet) vanish(which ...int) {
	f.t.Helper()
	for _, i := range which {
		if err := environment.Client.Delete(f.t.Context(), f.nodeClaims[i]); err != nil {
			f.t.Fatal(err)
		}
	}
}

// deleted reconciles all Machines, and returns how many are gone.
func (f *fleet) deleted() int {
	f.t.Helper()
	deleted := 0
	for _, machine := range f.machines {
		if exists(f.t, machine) {
			if _, err := f.controller.Reconcile(f.t.Context(), machine.DeepCopy()); err != nil {
				f.t.Fatal(err)
			}
		}
		if !exists(f.t, machine) {
			deleted++
		}
	}
	return deleted
}

func (f *fleet) cluster() *v1alpha1.TenantCluster {
	f.t.Helper()
	cluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(f.t.Context(), f.key, cluster); err != nil {
		f.t.Fatal(err)
	}
	return cluster
}

func (f *fleet) condition() metav1.Condition {
	return conditions.Find(f.cluster().Status.Conditions, v1alpha1.ConditionCollectionAllowed)
}

// confirm does what a message says.
func (f *fleet) confirm(message string) {
	f.t.Helper()
	_, annotation, found := strings.Cut(message, "kubectl annotate --overwrite tenantcluster -n "+f.key.Namespace+" "+f.key.Name+" ")
	name, value, also := strings.Cut(annotation, "=")
	if !found || !also {
		f.t.Fatalf("the message does not say how to confirm: %s", message)
	}
	cluster := f.cluster()
	cluster.Annotations = map[string]string{name: value}
	if err := environment.Client.Update(f.t.Context(), cluster); err != nil {
		f.t.Fatal(err)
	}
}

func upTo(n int) []int {
	var numbers []int
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

func TestBreaker(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		size        int
		unfinished  bool
		vanish      int
		wantDeleted int
		wantReason  string
	}{
		"One":        {reason: "one Machine is left behind", size: 1, vanish: 1, wantDeleted: 1},
		"Three":      {reason: "three are few in any fleet", size: 3, vanish: 3, wantDeleted: 3},
		"Four":       {reason: "all of a small fleet are too many", size: 4, vanish: 4, wantReason: v1alpha1.ReasonTooManyMachines},
		"AFifth":     {reason: "a fifth are few", size: 20, vanish: 4, wantDeleted: 4},
		"OverAFifth": {reason: "more than a fifth are too many", size: 20, vanish: 5, wantReason: v1alpha1.ReasonTooManyMachines},
		"NotInstalled": {reason: "Karpenter gives NodeClaims up before they launch, all at once if a pool is deleted", size: 6, vanish: 6,
			unfinished: true, wantDeleted: 6},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, tc.size, !tc.unfinished)
			f.vanish(upTo(tc.vanish)...)
			if deleted := f.deleted(); deleted != tc.wantDeleted {
				t.Errorf("%s: %d of %d Machines are deleted, want %d", tc.reason, deleted, tc.size, tc.wantDeleted)
			}
			condition := f.condition()
			if condition.Reason != tc.wantReason {
				t.Errorf("%s: the condition is %+v", tc.reason, condition)
			}
			if blocked := f.cluster().Blocked(); (len(blocked) > 0) != (tc.wantReason != "") {
				t.Errorf("events and metrics show %v", blocked)
			}
		})
	}
}

// TestBreakerOneByOne: NodeClaims that go one by one, with time for the collector between them, are as gone as all at once.
func TestBreakerOneByOne(t *testing.T) {
	f := newFleet(t, 8, true)
	for i, want := range []int{1, 2, 3, 3, 3} {
		f.vanish(i)
		f.clock.SetTime(f.clock.Now().Add(time.Minute))
		if deleted := f.deleted(); deleted != want {
			t.Fatalf("%d NodeClaims have gone, and %d Machines are deleted, want %d", i+1, deleted, want)
		}
	}
	f.clock.SetTime(f.clock.Now().Add(time.Hour))
	if deleted := f.deleted(); deleted != 5 {
		t.Errorf("what went an hour ago counts: %d Machines are deleted", deleted)
	}
	if condition := f.condition(); condition.Status != metav1.ConditionTrue {
		t.Errorf("the condition stays: %+v", condition)
	}
}

// TestBreakerConfirmed: a confirmation is for once, also after the clock was set.
func TestBreakerConfirmed(t *testing.T) {
	for name, later := range map[string]time.Duration{"Later": 2 * time.Hour, "ClockSetBack": -2 * time.Hour} {
		t.Run(name, func(t *testing.T) { testConfirmed(t, later) })
	}
}

func testConfirmed(t *testing.T, later time.Duration) {
	f := newFleet(t, 5, true)
	f.vanish(upTo(4)...)
	if deleted := f.deleted(); deleted != 0 {
		t.Fatalf("%d Machines are deleted", deleted)
	}
	f.confirm(f.condition().Message)
	if deleted := f.deleted(); deleted != 4 {
		t.Errorf("after the confirmation %d Machines are deleted: %+v", deleted, f.condition())
	}
	f.clock.SetTime(f.clock.Now().Add(later))
	for i := range 4 {
		f.add(fmt.Sprintf("later%d-%s", i, f.key.Namespace), true)
	}
	f.vanish(5, 6, 7, 8)
	if deleted := f.deleted(); deleted != 4 || f.condition().Status != metav1.ConditionFalse {
		t.Errorf("the old confirmation is in force: %d Machines are deleted: %+v", deleted, f.condition())
	}
}

// TestBreakerRestored: the NodeClaims come back.
func TestBreakerRestored(t *testing.T) {
	f := newFleet(t, 4, true)
	f.vanish(upTo(4)...)
	if deleted := f.deleted(); deleted != 0 {
		t.Fatalf("%d Machines are deleted", deleted)
	}
	for _, machine := range f.machines {
		machine.Annotations[v1alpha1.NodeClaimUIDAnnotationKey] = string(createNodeClaim(t, machine.Name).UID)
		if err := environment.Client.Update(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	if deleted := f.deleted(); deleted != 0 || f.condition().Status != metav1.ConditionTrue {
		t.Errorf("%d Machines are deleted: %+v", deleted, f.condition())
	}
	// A provider that was restarted takes the condition back too.
	clusters := tenanttest.Clusters(&environment, f.key, &faults.Connection{})
	f.controller = garbagecollection.NewMachineController(f.clock, clusters)
	cluster := f.cluster()
	conditions.Set(&cluster.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionCollectionAllowed, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonTooManyMachines})
	if err := environment.Client.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	if f.deleted(); f.condition().Status != metav1.ConditionTrue {
		t.Errorf("the condition stays: %+v", f.condition())
	}
}
