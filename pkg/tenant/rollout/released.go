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

// released is what a simulation is to take for free.
type released struct{ instanceType, zone string }

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
		if instanceType.Name == free.instanceType {
			result[i] = withFree(instanceType, free.zone)
		}
	}
	return result, nil
}

// suppose returns a context in which servers of the node's type and zone are free.
func suppose(ctx context.Context, labels map[string]string) context.Context {
	return context.WithValue(ctx, releasedKey{}, released{
		instanceType: labels[corev1.LabelInstanceTypeStable], zone: labels[corev1.LabelTopologyZone],
	})
}

// withFree copies an instance type whose offerings of a zone are free. The original is shared.
func withFree(instanceType *cloudprovider.InstanceType, zone string) *cloudprovider.InstanceType {
	offerings := make(cloudprovider.Offerings, len(instanceType.Offerings))
	for i, original := range instanceType.Offerings {
		offering := *original
		offering.Requirements = scheduling.NewRequirements(original.Requirements.Values()...)
		if offering.Zone() == zone {
			offering.Available, offering.ReservationCapacity = true, enough
		}
		offerings[i] = &offering
	}
	return &cloudprovider.InstanceType{
		Name: instanceType.Name, Requirements: instanceType.Requirements, Offerings: offerings,
		Capacity: instanceType.Capacity, Overhead: instanceType.Overhead, DynamicResources: instanceType.DynamicResources,
	}
}
