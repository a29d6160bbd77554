// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Meets tells whether some server of some type that passes the filter could meet a requirement, whether or not it is
// free.
func (c *Catalog) Meets(filter Filter, requirement *scheduling.Requirement) bool {
	items := c.read().items
	return slices.ContainsFunc(items, func(one item) bool {
		if !filter.Allows(one.name, one.provider) {
			return false
		}
		switch requirement.Key {
		case v1alpha1.NodeTypeLabelKey, corev1.LabelInstanceTypeStable:
			return requirement.Has(one.name)
		}
		for _, advertised := range one.nodeType.Status.Requirements {
			if advertised.Key == requirement.Key {
				return slices.ContainsFunc(advertised.Values, requirement.Has)
			}
		}
		known, found := one.instanceType.Requirements[requirement.Key]
		return !found || known.HasIntersection(requirement) ||
			known.Operator() == corev1.NodeSelectorOpDoesNotExist &&
				(requirement.Operator() == corev1.NodeSelectorOpDoesNotExist || requirement.Operator() == corev1.NodeSelectorOpNotIn)
	})
}
