// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// OfNodePool returns what a NodePool requires of the labels of its nodes: its requirements and its labels.
func OfNodePool(nodePool *karpv1.NodePool) scheduling.Requirements {
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(nodePool.Spec.Template.Spec.Requirements...)
	requirements.Add(scheduling.NewLabelRequirements(nodePool.Spec.Template.Labels).Values()...)
	return requirements
}

// CapacityTypeFor returns the capacity type of servers for a NodePool or a NodeClaim with these requirements: reserved,
// or on-demand if they allow only that. It is empty if they allow neither: there are no spot servers.
func CapacityTypeFor(requirements scheduling.Requirements) string {
	allowed := requirements.Get(karpv1.CapacityTypeLabelKey)
	for _, capacityType := range []string{karpv1.CapacityTypeReserved, karpv1.CapacityTypeOnDemand} {
		if allowed.Has(capacityType) {
			return capacityType
		}
	}
	return ""
}

// OfServer returns the requirements for a server: without the capacity type, if they allow one that servers have.
func OfServer(requirements scheduling.Requirements) scheduling.Requirements {
	if CapacityTypeFor(requirements) == "" {
		return requirements
	}
	requirements = maps.Clone(requirements)
	delete(requirements, karpv1.CapacityTypeLabelKey)
	return requirements
}

// ForNodePool changes the types to their form for a NodePool, which may be nil, and returns them.
func ForNodePool(nodePool *karpv1.NodePool, types []*cloudprovider.InstanceType) []*cloudprovider.InstanceType {
	if nodePool != nil && CapacityTypeFor(OfNodePool(nodePool)) == karpv1.CapacityTypeOnDemand {
		for i := range types {
			types[i] = onDemand(types[i])
		}
	}
	return types
}

// onDemand copies a type for on-demand. Core does not count its servers.
func onDemand(original *cloudprovider.InstanceType) *cloudprovider.InstanceType {
	notReserved := scheduling.NewRequirement(v1alpha1.ReservationIDLabelKey, corev1.NodeSelectorOpDoesNotExist)
	requirements := func(reserved scheduling.Requirements) scheduling.Requirements {
		result := maps.Clone(reserved)
		result[karpv1.CapacityTypeLabelKey] = in(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand)
		result[v1alpha1.ReservationIDLabelKey] = notReserved
		return result
	}
	result := WithOfferings(original, func(offering *cloudprovider.Offering) {
		offering.Requirements, offering.ReservationCapacity = requirements(offering.Requirements), 0
	})
	result.Requirements = requirements(original.Requirements)
	return result
}
