// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestWithout: a claimed server is subtracted until the status of its type counts the claim, and not longer.
func TestWithout(t *testing.T) {
	claims := func(nodeType string, numbers ...int64) (machines []*v1alpha1.Machine) {
		for _, number := range numbers {
			machines = append(machines, &v1alpha1.Machine{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", number)},
				Status: v1alpha1.MachineStatus{
					ProviderID: fmt.Sprintf("metal3://metal3/%s-%d/m-%d", nodeType, number, number), ClaimNumber: number,
					NodeTypeRef: &v1alpha1.NameReference{Name: nodeType}, NodeLabels: map[string]string{corev1.LabelTopologyZone: "dc1"},
				},
			})
		}
		return machines
	}
	for name, tc := range map[string]struct {
		reason string
		claims []*v1alpha1.Machine
		want   int
	}{
		"None":      {reason: "nothing is claimed", want: 2},
		"Counted":   {reason: "the status has both claims", claims: claims("a100", 9, 10), want: 2},
		"Uncounted": {reason: "the status is of a moment before the claim", claims: claims("a100", 11), want: 1},
		"Both":      {reason: "each claim takes a server", claims: claims("a100", 11, 12)},
		"TooMany":   {reason: "less than none is free nowhere", claims: claims("a100", 11, 12, 13)},
		"OtherType": {reason: "types that share no server have counts of their own", claims: claims("h100", 11), want: 2},
		"Unknown":   {reason: "the provider does not see the type yet", claims: claims("b200", 11), want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := NewCatalog(DefaultPods)
			for _, name := range []string{"a100", "h100"} {
				known := nodeType(name, 4, zone("dc1", 2))
				known.Status.Capacity, known.Status.CountedUntil = v1alpha1.Capacity{Total: 2, Available: 2}, 10
				catalog.Set(known)
			}
			left := 0
			for _, instanceType := range catalog.Without(&v1alpha1.TenantCluster{}, tc.claims,
				nil).InstanceTypes(NewFilter(nil, nil)) {
				for _, offering := range instanceType.Offerings.Available() {
					if instanceType.Name == "a100" {
						left += offering.ReservationCapacity
					}
				}
			}
			if left != tc.want {
				t.Errorf("%d servers of a100 are left, want %d: %s", left, tc.want, tc.reason)
			}
		})
	}
}

// TestWithoutWithinQuota: a Machine that fits two types gets a server of the type that is within the quota.
func TestWithoutWithinQuota(t *testing.T) {
	waiting := func(names ...string) (machines []*v1alpha1.Machine) {
		for _, name := range names {
			machines = append(machines, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		return machines
	}
	chosen := waiting("chosen")
	chosen[0].SetChosenHost(v1alpha1.HostReference{Namespace: "metal3", Name: "h", UID: "h"}, "cheap")
	for name, tc := range map[string]struct {
		reason   string
		machines []*v1alpha1.Machine
		left     map[string]int64
		want     map[string]string
	}{
		"NoQuota": {"the cheapest", waiting("a", "b"), nil, map[string]string{"a": "cheap", "b": "cheap"}},
		"OneLeft": {"one of the cheapest, and then the other", waiting("a", "b"), map[string]int64{"cheap": 1},
			map[string]string{"a": "cheap", "b": "dear"}},
		"Reached": {"none of the cheapest", waiting("a"), map[string]int64{"cheap": 0}, map[string]string{"a": "dear"}},
		"Both":    {"none of any", waiting("a"), map[string]int64{"cheap": 0, "dear": 0}, map[string]string{}},
		"Chosen": {"its server is counted already", chosen, map[string]int64{"cheap": 0},
			map[string]string{"chosen": "cheap"}},
	} {
		t.Run(name, func(t *testing.T) {
			catalog := NewCatalog(DefaultPods)
			for i, name := range []string{"cheap", "dear"} {
				known := nodeType(name, 0, zone("dc1", 2))
				known.Status.Capacity, known.Status.Cost = v1alpha1.Capacity{Total: 2, Available: 2}, int64(i)
				known.OwnerReferences, known.Spec.ProviderRef.Name = env.MadeBy("provider"), "provider"
				catalog.Set(known)
			}
			// The remainder is remembered, and another quota leaves another.
			catalog.Without(&v1alpha1.TenantCluster{}, tc.machines, map[string]int64{"cheap": 7})
			for range 2 {
				got := catalog.Without(&v1alpha1.TenantCluster{}, tc.machines, tc.left).NodeTypes
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}

// TestWithoutFollowsEdits: an edit of the tenant, or the choice of a server, changes what is left at once.
func TestWithoutFollowsEdits(t *testing.T) {
	catalog := NewCatalog(DefaultPods)
	for i, name := range []string{"cheap", "dear"} {
		known := nodeType(name, 0, zone("dc1", 2))
		known.Status.Capacity, known.Status.Cost = v1alpha1.Capacity{Total: 2, Available: 2}, int64(i)
		known.OwnerReferences, known.Spec.ProviderRef.Name = env.MadeBy("provider"), "provider"
		catalog.Set(known)
	}
	tenant, machines := &v1alpha1.TenantCluster{}, []*v1alpha1.Machine{{ObjectMeta: metav1.ObjectMeta{Name: "m"}}}
	for _, tc := range []struct {
		reason string
		edit   func()
		want   map[string]string
	}{
		{"the cheapest", func() {}, map[string]string{"m": "cheap"}},
		{"the tenant may have the other one alone", func() { tenant.Spec.AllowedNodeTypes = &[]string{"dear"} }, map[string]string{"m": "dear"}},
		{"the tenant may have nothing", func() { tenant.Spec.AllowedNodeTypes = &[]string{} }, map[string]string{}},
		{"the tenant may have all", func() { tenant.Spec.AllowedNodeTypes = nil }, map[string]string{"m": "cheap"}},
		{"the manager has chosen", func() {
			machines[0].SetChosenHost(v1alpha1.HostReference{Namespace: "metal3", Name: "h", UID: "h"}, "dear")
		}, map[string]string{"m": "dear"}},
	} {
		tc.edit()
		if diff := cmp.Diff(tc.want, catalog.Without(tenant, machines, nil).NodeTypes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
