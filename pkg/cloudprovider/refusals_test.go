// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// What is refused again as soon as it may be tried again is tried ever more seldom.
func TestBackoffGrows(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		given  string
		want   []time.Duration
	}{
		"invalid": {
			reason: "a class is not corrected within seconds", given: v1alpha1.ReasonInvalidSpec,
			want: []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second,
				320 * time.Second, 10 * time.Minute, 10 * time.Minute},
		},
		"no capacity": {
			reason: "another tenant was faster, and the catalog knows in a moment what is left", given: v1alpha1.ReasonNoCapacity,
			want: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			r, key, condition := newRefusals(clk), poolType{nodePool: "pool", nodeType: "type"}, metav1.Condition{Reason: tc.given}
			for _, want := range tc.want {
				now := clk.Now()
				b, begins := r.record(key, "", now, condition)
				if got := b.until.Sub(now); !begins || got != want {
					t.Fatalf("%s: a backoff of %v begins: %v, want %v", tc.reason, got, begins, want)
				}
				clk.SetTime(b.until.Add(-time.Nanosecond))
				if _, found := r.find(key); !found {
					t.Fatal("it is over too early")
				}
				clk.SetTime(b.until)
				if _, found := r.find(key); found {
					t.Fatal("it does not end")
				}
				clk.Step(9 * time.Second)
			}
			clk.Step(time.Hour)
			if b, _ := r.record(key, "", clk.Now(), condition); b.until.Sub(clk.Now()) != tc.want[0] {
				t.Errorf("after a long time without a refusal it starts with %v", b.until.Sub(clk.Now()))
			}
		})
	}
}

// A backoff ends with a change that may help, and with no other.
func TestBackoffEnds(t *testing.T) {
	edited := func(object client.Object) [2]client.Object {
		after := object.DeepCopyObject().(client.Object)
		after.SetGeneration(2)
		return [2]client.Object{object, after}
	}
	named := metav1.ObjectMeta{Name: "a", Generation: 1}
	nodePool, class := &karpv1.NodePool{ObjectMeta: named}, &v1alpha1.MetalNodeClass{ObjectMeta: named}
	tenant, other := &v1alpha1.TenantCluster{ObjectMeta: named}, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	server := &v1alpha1.Machine{Status: v1alpha1.MachineStatus{HostRef: &v1alpha1.HostReference{}}}
	nodeType := func(available int32) *v1alpha1.NodeType {
		result := &v1alpha1.NodeType{ObjectMeta: named}
		result.Status.Capacity.Available = available
		return result
	}
	freed, taken := [2]client.Object{nodeType(0), nodeType(1)}, [2]client.Object{nodeType(1), nodeType(0)}
	released := [2]client.Object{server, nil}
	reborn := nodePool.DeepCopy()
	reborn.UID = "another"
	for name, tc := range map[string]struct {
		reason string
		given  string
		change [2]client.Object
		want   bool
	}{
		"NodePool": {"it may be right now", v1alpha1.ReasonInvalidSpec, edited(nodePool), false},
		"Class":    {"it may be right now", v1alpha1.ReasonInvalidSpec, edited(class), false},
		"NodeType": {"it may be right now", v1alpha1.ReasonInvalidSpec, edited(nodeType(0)), false},
		"Tenant":   {"it may have the type now", v1alpha1.ReasonNotAllowed, edited(tenant), false},
		"Reborn":   {"another of that name", v1alpha1.ReasonInvalidSpec, [2]client.Object{nodePool, reborn}, false},
		"Gone":     {"another of that name may follow", v1alpha1.ReasonInvalidSpec, [2]client.Object{nodePool, nil}, false},
		"Pods":     {"a node of the class may have more room", reasonPodNotPlaced, edited(class), false},
		"Other":    {"it is about another NodePool", v1alpha1.ReasonInvalidSpec, edited(other), true},
		"Status": {"it says nothing of the class", v1alpha1.ReasonInvalidSpec,
			[2]client.Object{class, class.DeepCopy()}, true},
		"Heartbeat": {"so it is with a tenant that reports itself", v1alpha1.ReasonNoAddress,
			[2]client.Object{tenant, tenant.DeepCopy()}, true},
		"Taken":             {"there is one server less", v1alpha1.ReasonNoCapacity, taken, true},
		"InvalidFreed":      {"a server more does not correct a class", v1alpha1.ReasonInvalidSpec, freed, true},
		"InvalidReleased":   {"a server more does not correct a class", v1alpha1.ReasonInvalidSpec, released, true},
		"PodsFreed":         {"the next server is no larger", reasonPodNotPlaced, freed, true},
		"NoAddressReleased": {"it had an address", v1alpha1.ReasonNoAddress, released, false},
		"NoAddressFreed":    {"the address is another tenant's", v1alpha1.ReasonNoAddress, freed, true},
		"QuotaReleased":     {"a ResourceQuota counts Machines", reasonInvalidMachine, released, false},
		"NoServer": {"a Machine without a server gives nothing back", v1alpha1.ReasonNoAddress,
			[2]client.Object{&v1alpha1.Machine{}, nil}, true},
		"MachineWritten": {"it keeps its server", v1alpha1.ReasonNoCapacity,
			[2]client.Object{server, server.DeepCopy()}, true},
		"NoCapacityFreed":    {"there is one more", v1alpha1.ReasonNoCapacity, freed, false},
		"NoCapacityReleased": {"there is one more", v1alpha1.ReasonNoCapacity, released, false},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			told := 0
			c := New(nil, nil, &Management{Catalog: instancetypes.NewCatalog(instancetypes.DefaultPods)}, nil, clk, Options{})
			c.management.Catalog.OnChange(func() { told++ })
			key, condition := poolType{nodePool: "a", nodeType: "a"}, metav1.Condition{Reason: tc.given}
			first, _ := c.refusals.record(key, "", clk.Now(), condition)
			c.changed(tc.change[0], tc.change[1])
			if _, found := c.refusals.find(key); found != tc.want || !found && told == 0 {
				t.Errorf("%s: still refused %v, want %v, and %d are told", tc.reason, found, tc.want, told)
			}
			clk.SetTime(first.until)
			again, begins := c.refusals.record(key, "", clk.Now(), condition)
			if grows := again.until.Sub(again.since) > first.until.Sub(first.since); !begins || grows != tc.want {
				t.Errorf("%s: refused again, it is longer: %v, want %v", tc.reason, grows, tc.want)
			}
		})
	}
	t.Run("a burst", func(t *testing.T) {
		clk := clocktesting.NewFakeClock(time.Unix(0, 0))
		r, key, condition := newRefusals(clk), poolType{nodePool: "pool", nodeType: "type"}, metav1.Condition{Reason: v1alpha1.ReasonNoCapacity}
		began := clk.Now().Add(-time.Second)
		first, _ := r.record(key, "", began, condition)
		clk.Step(5 * time.Second)
		if b, begins := r.record(key, "", began, condition); begins || b.until != first.until {
			t.Errorf("NodeClaims that were launched together count as tried again: %v", b.until)
		}
	})
}

// What was refused is not offered to its NodePool, with the reason on the NodePool and on the pods, until the class changes.
func TestRefusedTypeIsNotOffered(t *testing.T) {
	f := newFixture(t, interceptor.Funcs{})
	clk := clocktesting.NewFakeClock(time.Now())
	f.clock, f.refusals = clk, newRefusals(clk)
	nodePool := f.nodePool()
	f.freeTwo(nodePool)
	pod := podFor(nodePool, env.Resources("nvidia.com/gpu", "1"))
	var retryAfter time.Duration
	offered := func() bool {
		t.Helper()
		all, err := f.GetInstanceTypes(f.ctx, nodePool)
		if err != nil || len(all) != 1 || len(all[0].Offerings) == 0 {
			t.Fatalf("%d types, %v: a type that vanishes is drift", len(all), err)
		}
		var free int64
		if free, retryAfter, err = f.FreeFor(f.ctx, nodePool); err != nil {
			t.Fatal(err)
		}
		if (free > 0) != (len(all[0].Offerings.Available()) > 0) {
			t.Errorf("a static pool could have %d servers, of %d offerings", free, len(all[0].Offerings.Available()))
		}
		return free > 0
	}
	refuse := func(name string) {
		t.Helper()
		nodeClaim := f.nodeClaim(name)
		nodeClaim.Labels[karpv1.NodePoolLabelKey] = nodePool.Name
		answering := &sync.WaitGroup{}
		answering.Go(func() { f.answer(name, refuses(v1alpha1.ReasonInvalidSpec, "OSImage missing does not exist")) })
		_, err := f.Create(f.ctx, nodeClaim)
		answering.Wait()
		if !cloudprovider.IsInsufficientCapacityError(err) {
			t.Fatal(err)
		}
	}
	refuse("gpu-1")
	if offered() || retryAfter != firstBackoff {
		t.Errorf("what was refused is offered again at once, or after %v", retryAfter)
	}
	f.wantEvent(reasonServerRefused, "no NodeClaim is made for NodeType "+f.nodeType, "OSImage missing does not exist")
	if told, err := f.refusedFor(f.ctx, pod); err != nil || !strings.Contains(told, "OSImage missing does not exist") {
		t.Errorf("a pod that waits is told %q, %v", told, err)
	}
	if why, err := f.Refusal(f.ctx, nodePool, f.nodeType); err != nil || !strings.Contains(why, "OSImage missing does not exist") {
		t.Errorf("a rollout is told %q, %v: it would give a node up for nothing", why, err)
	}
	clk.Step(firstBackoff)
	if !offered() || retryAfter != 0 {
		t.Error("it is never offered again")
	}
	refuse("gpu-2")
	if offered() || retryAfter != 2*firstBackoff {
		t.Errorf("it is tried again after %v", retryAfter)
	}
	f.class.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: "debian"}
	if err := environment.Client.Update(f.ctx, f.class); err != nil {
		t.Fatal(err)
	}
	f.eventually("the class was corrected, and the type is offered", func() error {
		if !offered() {
			return errors.New("it is not")
		}
		return nil
	})
	if told, err := f.refusedFor(f.ctx, pod); err != nil || told != "" {
		t.Errorf("a pod that waits is told %q, %v", told, err)
	}
}

// What is refused in one rack says little about the others.
func TestBackoffOfPlaces(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		given  string
		places []string
		want   []time.Duration
	}{
		"Anywhere": {"the whole type is exhausted", v1alpha1.ReasonNoCapacity, []string{"", "", "", "", "", "", ""},
			[]time.Duration{1, 2, 4, 8, 16, 32, 64}},
		"OneRack": {"its servers flap, and the type is withheld in all racks meanwhile", v1alpha1.ReasonNoCapacity,
			[]string{"r1", "r1", "r1", "r1", "r1", "r1", "r1"}, []time.Duration{1, 2, 4, 8, 16, 20, 20}},
		"OtherRacks": {"each is refused once", v1alpha1.ReasonNoCapacity, []string{"r1", "r2", "r3", "r1"}, []time.Duration{1, 1, 1, 1}},
		"RackThenAnywhere": {"the first says nothing about the second", v1alpha1.ReasonNoCapacity, []string{"r1", "r1", "", ""},
			[]time.Duration{1, 2, 1, 2}},
		"Invalid": {"a wrong image is wrong in all racks", v1alpha1.ReasonInvalidSpec, []string{"r1", "r2", "r3"},
			[]time.Duration{10, 20, 40}},
		"Quota": {"so is a quota", v1alpha1.ReasonQuotaExceeded, []string{"r1", "r2", "r3"}, []time.Duration{1, 2, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Unix(0, 0))
			r, key := newRefusals(clk), poolType{nodePool: "pool", nodeType: "type"}
			for i, place := range tc.places {
				recorded, begins := r.record(key, place, clk.Now(), metav1.Condition{Reason: tc.given})
				if got := recorded.until.Sub(clk.Now()); !begins || got != tc.want[i]*time.Second {
					t.Errorf("%s: refusal %d begins %v, for %v, want %v", tc.reason, i, begins, got, tc.want[i]*time.Second)
				}
				clk.SetTime(recorded.until)
			}
		})
	}
}

// TestPlaceOf: a NodeClaim that leaves the server open asks for no place.
func TestPlaceOf(t *testing.T) {
	in := func(key string, values ...string) *scheduling.Requirement {
		return scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, values...)
	}
	offered := scheduling.NewRequirements(in("rack", "r1", "r2", "r3"), in("zone", "z1"), in("arch", "amd64"))
	for name, tc := range map[string]struct {
		reason string
		wanted scheduling.Requirements
		want   string
	}{
		"Open":      {"nothing is asked for", scheduling.NewRequirements(), ""},
		"OtherKey":  {"a label that servers do not differ in", scheduling.NewRequirements(in("zone", "z1"), in("team", "blue")), ""},
		"All":       {"all that there are", scheduling.NewRequirements(in("rack", "r1", "r2", "r3", "r4")), ""},
		"One":       {"a rack", scheduling.NewRequirements(in("rack", "r2")), "rack=r2"},
		"Two":       {"two of three", scheduling.NewRequirements(in("rack", "r3", "r1")), "rack=r1,r3"},
		"AllButOne": {"as above", scheduling.NewRequirements(scheduling.NewRequirement("rack", corev1.NodeSelectorOpNotIn, "r2")), "rack=r1,r3"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := placeOf(offered, tc.wanted); got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
