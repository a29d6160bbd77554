// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// requirementsOf translates a nodeTypeSelector, or returns what is wrong with it.
//
// A property that no NodeType has needs care, unless Karpenter knows the label. Karpenter accepts any value of a label that
// an instance type does not mention, so a typing error would get the tenant any server. In and Exists of such a property
// match nothing, which a NodePool cannot express, so the NodePool is not written. NotIn and NotExists match everything and
// are left out.
func requirementsOf(
	selector []v1alpha1.NodeTypeSelectorRequirement, servers servers,
) ([]karpv1.NodeSelectorRequirementWithMinValues, string) {
	requirements := []karpv1.NodeSelectorRequirementWithMinValues{{
		Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{servers.capacityType},
	}}
	for i, entry := range selector {
		path := field.NewPath("nodeTypeSelector").Index(i)
		one, err := matching.NodeTypeSelector(path, entry)
		if err != nil {
			return nil, err.Error()
		}
		selects := one.Operator == corev1.NodeSelectorOpIn || one.Operator == corev1.NodeSelectorOpExists
		switch {
		case servers.advertises(one.Key), karpv1.WellKnownLabels.Has(one.Key):
			requirements = append(requirements,
				karpv1.NodeSelectorRequirementWithMinValues{Key: one.Key, Operator: one.Operator, Values: one.Values})
		case selects:
			return nil, fmt.Sprintf("%s: no NodeType has the property %s: correct it, or give it to the NodeTypes that are meant", path, one.Key)
		}
	}
	return requirements, ""
}
