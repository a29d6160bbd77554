// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func TestCapacityTypeOfNodePools(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		operator corev1.NodeSelectorOperator
		values   []string
		labels   map[string]string
		// want by what the provider says.
		reserved, onDemand string
	}{
		"nothing":         {"the provider's", "", nil, nil, "reserved", "on-demand"},
		"both":            {"the provider's", "In", []string{"on-demand", "reserved"}, nil, "reserved", "on-demand"},
		"on-demand":       {"nothing else is allowed", "In", []string{"on-demand"}, nil, "on-demand", "on-demand"},
		"the cloud's two": {"as in many examples", "In", []string{"spot", "on-demand"}, nil, "on-demand", "on-demand"},
		"reserved":        {"nothing else is allowed", "In", []string{"reserved"}, nil, "reserved", "reserved"},
		"not reserved":    {"it leaves on-demand", "NotIn", []string{"reserved"}, nil, "on-demand", "on-demand"},
		"not spot":        {"servers never are", "NotIn", []string{"spot"}, nil, "reserved", "on-demand"},
		"exists":          {"every node has one", "Exists", nil, nil, "reserved", "on-demand"},
		"spot":            {"there are none", "In", []string{"spot"}, nil, "", ""},
		"none":            {"every node has one", "DoesNotExist", nil, nil, "", ""},
		"label": {"it is a requirement, too", "", nil, map[string]string{karpenterv1.CapacityTypeLabelKey: "on-demand"},
			"on-demand", "on-demand"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &karpenterv1.NodePool{}
			pool.Spec.Template.Labels = tc.labels
			if tc.operator != "" {
				pool.Spec.Template.Spec.Requirements = []karpenterv1.NodeSelectorRequirementWithMinValues{{
					Key: karpenterv1.CapacityTypeLabelKey, Operator: tc.operator, Values: tc.values}}
			}
			for is, want := range map[string]string{"reserved": tc.reserved, "on-demand": tc.onDemand} {
				if got := (Settings{CapacityType: is}).CapacityTypeFor(OfNodePool(pool)); got != want {
					t.Errorf("%s: servers are %s: got %q, want %q", tc.reason, is, got, want)
				}
			}
		})
	}
}

// A NodePool of the other capacity type sees the same types, and follows them when they change and go. Its nodes keep a price when the
// type is gone.
func TestCatalogOfTheOtherCapacityType(t *testing.T) {
	catalog := NewCatalog(DefaultSettings())
	pool := &karpenterv1.NodePool{}
	pool.Spec.Template.Spec.Requirements = []karpenterv1.NodeSelectorRequirementWithMinValues{{
		Key: karpenterv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}}}
	catalog.Set(nodeType("a100", 4, zone("dc1", 2)))
	names := func() (names []string) {
		for _, instanceType := range catalog.ForNodePool(pool).InstanceTypesFor(NewFilter(nil, nil), noDemand()) {
			names = append(names, instanceType.Name)
			for _, offering := range instanceType.Offerings {
				if offering.CapacityType() != "on-demand" || offering.ReservationCapacity != 0 {
					t.Errorf("%s has an offering %v", instanceType.Name, offering.Requirements)
				}
			}
		}
		return names
	}
	if diff := cmp.Diff([]string{"a100"}, names()); diff != "" {
		t.Error(diff)
	}
	other := nodeType("h100", 8, zone("dc1", 1))
	other.UID = "2"
	catalog.Set(other)
	catalog.Delete("a100")
	if diff := cmp.Diff([]string{"h100"}, names()); diff != "" {
		t.Error(diff)
	}
	if got := catalog.ForNodePool(pool).Gone("a100", 7).Offerings[0]; got.CapacityType() != "on-demand" || got.Price != 7 {
		t.Errorf("a type that is gone is offered as %v for %v", got.Requirements, got.Price)
	}
	if catalog.ForNodePool(nil) != catalog || catalog.ForNodePool(&karpenterv1.NodePool{}) != catalog {
		t.Error("a NodePool that says nothing has other types than before")
	}
}
