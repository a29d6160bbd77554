// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
)

func TestCapacityTypeOfNodePools(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		operator corev1.NodeSelectorOperator
		values   []string
		labels   map[string]string
		want     string
	}{
		"nothing":         {"Karpenter counts them", "", nil, nil, "reserved"},
		"both":            {"Karpenter counts them", "In", []string{"on-demand", "reserved"}, nil, "reserved"},
		"on-demand":       {"nothing else is allowed", "In", []string{"on-demand"}, nil, "on-demand"},
		"the cloud's two": {"as in many examples", "In", []string{"spot", "on-demand"}, nil, "on-demand"},
		"reserved":        {"nothing else is allowed", "In", []string{"reserved"}, nil, "reserved"},
		"not reserved":    {"it leaves on-demand", "NotIn", []string{"reserved"}, nil, "on-demand"},
		"not spot":        {"servers never are", "NotIn", []string{"spot"}, nil, "reserved"},
		"exists":          {"every node has one", "Exists", nil, nil, "reserved"},
		"spot":            {"there are none", "In", []string{"spot"}, nil, ""},
		"none":            {"every node has one", "DoesNotExist", nil, nil, ""},
		"label": {"it is a requirement, too", "", nil, map[string]string{karpv1.CapacityTypeLabelKey: "on-demand"},
			"on-demand"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &karpv1.NodePool{}
			pool.Spec.Template.Labels = tc.labels
			if tc.operator != "" {
				pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{
					Key: karpv1.CapacityTypeLabelKey, Operator: tc.operator, Values: tc.values}}
			}
			if got := CapacityTypeFor(OfNodePool(pool)); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// A NodePool that allows on-demand only sees the same types, and its nodes keep a price when the type is gone. The
// types of others are not changed.
func TestForNodePool(t *testing.T) {
	catalog := NewCatalog(DefaultPods)
	pool := &karpv1.NodePool{}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{
		Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}}}
	catalog.Set(nodeType("a100", 4, zone("dc1", 2)))
	types := func() []*cloudprovider.InstanceType {
		return append(catalog.InstanceTypesFor(NewFilter(nil, nil), noDemand()), catalog.Gone("gone", 7))
	}
	onDemand := ForNodePool(pool, types())
	for _, instanceType := range onDemand {
		for _, offering := range instanceType.Offerings {
			if offering.CapacityType() != "on-demand" || offering.ReservationCapacity != 0 || offering.ReservationID() != "" {
				t.Errorf("%s has an offering %v", instanceType.Name, offering.Requirements)
			}
		}
		got := instanceType.Requirements.Get(karpv1.CapacityTypeLabelKey).Values()
		if !slices.Equal(got, []string{"on-demand"}) {
			t.Errorf("%s is %v", instanceType.Name, got)
		}
	}
	gone := onDemand[1].Offerings
	if len(onDemand[0].Offerings.Available()) == 0 || len(gone.Available()) > 0 || gone[0].Price != 7 {
		t.Errorf("servers are free of %v", onDemand)
	}
	for _, other := range []*karpv1.NodePool{nil, {}} {
		if got := ForNodePool(other, types())[0]; got.Offerings[0].CapacityType() != "reserved" {
			t.Errorf("to a NodePool that says nothing servers are %v", got.Requirements)
		}
	}
}
