// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// Meets returns whether some server of some type that passes the filter could meet a requirement, whether or not it is
// free.
func (c *Catalog) Meets(filter Filter, requirement *labels.Requirement) bool {
	return slices.ContainsFunc(c.read().items, func(one item) bool {
		if !filter.Allows(one.name, one.provider) {
			return false
		}
		offered := matching.OfferedBy(one.nodeType)
		if len(offered[corev1.LabelTopologyZone]) == 0 {
			delete(offered, corev1.LabelTopologyZone) // a type without servers would be in every zone
		}
		return offered.Meets(requirement)
	})
}
