// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

type fixedTypes struct {
	cloudprovider.CloudProvider
	types []*cloudprovider.InstanceType
}

func (f fixedTypes) GetInstanceTypes(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return f.types, nil
}

// TestSimulatedCapacity: in a simulation the type and zone of the released server are free, everything else is as it is, and what
// others see does not change.
func TestSimulatedCapacity(t *testing.T) {
	offering := func(zone string) *cloudprovider.Offering {
		return &cloudprovider.Offering{Requirements: scheduling.NewRequirements(
			scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zone),
			scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, karpv1.CapacityTypeReserved),
		)}
	}
	inner := fixedTypes{types: []*cloudprovider.InstanceType{
		{Name: "h100", Offerings: cloudprovider.Offerings{offering("dc1"), offering("dc2")}},
		{Name: "a100", Offerings: cloudprovider.Offerings{offering("dc1")}},
	}}
	free := func(provider cloudprovider.CloudProvider) (names []string) {
		types, err := provider.GetInstanceTypes(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, instanceType := range types {
			for _, o := range instanceType.Offerings {
				if o.Available && o.ReservationCapacity > 0 {
					names = append(names, instanceType.Name+"/"+o.Zone())
				}
			}
		}
		return names
	}
	if got := free(inner); len(got) != 0 {
		t.Errorf("without a simulation %v are free", got)
	}
	simulated := &simulatedCapacity{CloudProvider: inner,
		node: map[string]string{corev1.LabelInstanceTypeStable: "h100", corev1.LabelTopologyZone: "dc2"}}
	if got := free(simulated); len(got) != 1 || got[0] != "h100/dc2" {
		t.Errorf("in the simulation %v are free, want h100/dc2", got)
	}
	renamed := &simulatedCapacity{CloudProvider: inner,
		node: map[string]string{corev1.LabelInstanceTypeStable: "h100", corev1.LabelTopologyZone: "old"}}
	if got := free(renamed); len(got) != 2 {
		t.Errorf("of a node in a zone that has another name by now %v are free, want the zones of its type", got)
	}
	if got := free(inner); len(got) != 0 {
		t.Errorf("after the simulation %v are free", got)
	}
}

// TestSimulatedServerHasItsTopologyLabels: where every server is in use, a type says of no place that it has servers there. Pods and
// NodePools that ask for the place of the released server find it all the same.
func TestSimulatedServerHasItsTopologyLabels(t *testing.T) {
	const rack = "topology.example.com/rack"
	inner := fixedTypes{types: []*cloudprovider.InstanceType{{
		Name: "h100",
		Requirements: scheduling.NewRequirements(
			scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpDoesNotExist),
			scheduling.NewRequirement(rack, corev1.NodeSelectorOpIn, "r2"),
		),
		Offerings: cloudprovider.Offerings{{Requirements: scheduling.NewRequirements(
			scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, "dc1"),
		)}},
	}}}
	simulated := &simulatedCapacity{CloudProvider: inner, node: map[string]string{
		corev1.LabelInstanceTypeStable: "h100", corev1.LabelTopologyZone: "dc1", rack: "r1", "mine": "all mine",
	}}
	types, err := simulated.GetInstanceTypes(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range map[string][]string{corev1.LabelTopologyZone: {"dc1"}, rack: {"r1", "r2"}} {
		for _, value := range values {
			if got := types[0].Requirements.Get(key); !got.Has(value) {
				t.Errorf("in the simulation the type has %s %v, want it to have %s", key, got, value)
			}
		}
	}
	if types[0].Requirements.Has("mine") {
		t.Error("a label that says nothing of servers is one of the type")
	}
	if inner.types[0].Requirements.Get(rack).Has("r1") {
		t.Error("the type of others has changed")
	}
}
