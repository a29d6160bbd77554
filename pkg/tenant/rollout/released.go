// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// enough servers for every pod that a simulation can have. Pods that wait for a server anyway must not have it appear
// that there is no room for those that are to be drained.
const enough = 1 << 20

// released is the server that a simulation is to take for free, by the labels of its node.
type released map[string]string

type releasedKey struct{}

// WithReleased decorates a CloudProvider: in a simulation of this package, servers such as the one that is to be released
// are free. Nobody else sees a difference.
func WithReleased(inner cloudprovider.CloudProvider) cloudprovider.CloudProvider {
	return &whatIf{CloudProvider: inner}
}

type whatIf struct{ cloudprovider.CloudProvider }

// GetInstanceTypes implements cloudprovider.CloudProvider.
func (w *whatIf) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	types, err := w.CloudProvider.GetInstanceTypes(ctx, nodePool)
	free, simulated := ctx.Value(releasedKey{}).(released)
	if err != nil || !simulated {
		return types, err
	}
	result := make([]*cloudprovider.InstanceType, len(types))
	for i, instanceType := range types {
		result[i] = instanceType
		if instanceType.Name == free[corev1.LabelInstanceTypeStable] {
			result[i] = withFree(instanceType, free)
		}
	}
	return result, nil
}

// suppose returns a context in which servers of the node's type and place are free.
func suppose(ctx context.Context, labels map[string]string) context.Context {
	return context.WithValue(ctx, releasedKey{}, released(labels))
}

// withFree copies an instance type whose offerings in the zone of the server are free. The original is shared. A type
// without a free server in a place does not say that it has any there, so it has to be told of the server's place.
func withFree(instanceType *cloudprovider.InstanceType, server released) *cloudprovider.InstanceType {
	offerings := make(cloudprovider.Offerings, len(instanceType.Offerings))
	for i, original := range instanceType.Offerings {
		offering := *original
		offering.Requirements = scheduling.NewRequirements(original.Requirements.Values()...)
		if offering.Zone() == server[corev1.LabelTopologyZone] {
			offering.Available, offering.ReservationCapacity = true, enough
		}
		offerings[i] = &offering
	}
	requirements := scheduling.NewRequirements(instanceType.Requirements.Values()...)
	for key, original := range instanceType.Requirements {
		if value, has := server[key]; has && !original.Has(value) {
			requirements[key] = scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, append(original.Values(), value)...)
		}
	}
	return &cloudprovider.InstanceType{
		Name: instanceType.Name, Requirements: requirements, Offerings: offerings,
		Capacity: instanceType.Capacity, Overhead: instanceType.Overhead, DynamicResources: instanceType.DynamicResources,
	}
}
