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

// TestReleased: in a simulation the type and zone of the released server are free, everything else is as it is, and what
// others see does not change.
func TestReleased(t *testing.T) {
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
	decorated := WithReleased(inner)
	free := func(ctx context.Context) (names []string) {
		types, err := decorated.GetInstanceTypes(ctx, nil)
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
	if got := free(t.Context()); len(got) != 0 {
		t.Errorf("without a simulation %v are free", got)
	}
	supposed := suppose(t.Context(), map[string]string{corev1.LabelInstanceTypeStable: "h100", corev1.LabelTopologyZone: "dc2"})
	if got := free(supposed); len(got) != 1 || got[0] != "h100/dc2" {
		t.Errorf("in the simulation %v are free, want h100/dc2", got)
	}
	if got := free(t.Context()); len(got) != 0 {
		t.Errorf("after the simulation %v are free", got)
	}
}
