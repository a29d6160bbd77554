// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// OfNodePool is what a NodePool requires of the labels of its nodes: its requirements and its labels.
func OfNodePool(nodePool *karpenterv1.NodePool) scheduling.Requirements {
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(nodePool.Spec.Template.Spec.Requirements...)
	requirements.Add(scheduling.NewLabelRequirements(nodePool.Spec.Template.Labels).Values()...)
	return requirements
}

// CapacityTypeFor is what servers are to a NodePool or a NodeClaim with these requirements: CapacityType, or the other one if the
// requirements allow only that. It is empty if they allow neither: there are no spot servers.
func (s Settings) CapacityTypeFor(requirements scheduling.Requirements) string {
	allowed := requirements.Get(karpenterv1.CapacityTypeLabelKey)
	for _, one := range []string{s.CapacityType, s.otherCapacityType()} {
		if allowed.Has(one) {
			return one
		}
	}
	return ""
}

func (s Settings) otherCapacityType() string {
	if s.Reserved() {
		return karpenterv1.CapacityTypeOnDemand
	}
	return karpenterv1.CapacityTypeReserved
}

// For returns the catalog of the types for a NodePool or a NodeClaim with these requirements. Both catalogs have the same types:
// to the one their servers are reserved, to the other on-demand.
func (c *Catalog) For(requirements scheduling.Requirements) *Catalog {
	if c.other != nil && c.settings.CapacityTypeFor(requirements) == c.other.settings.CapacityType {
		return c.other
	}
	return c
}

// ForNodePool returns the catalog of the types for a NodePool, or the default one if that is nil.
func (c *Catalog) ForNodePool(nodePool *karpenterv1.NodePool) *Catalog {
	if nodePool == nil {
		return c
	}
	return c.For(OfNodePool(nodePool))
}

// ForNodeClaim returns the catalog of the types for a NodeClaim.
func (c *Catalog) ForNodeClaim(nodeClaim *karpenterv1.NodeClaim) *Catalog {
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)
	requirements.Add(scheduling.NewLabelRequirements(nodeClaim.Labels).Values()...)
	return c.For(requirements)
}
