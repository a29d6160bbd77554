// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package matching

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// Narrowing returns what the properties of a pool require of its NodeTypes, sorted by key. A custom property narrows
// only if one of the types has it. If no type has it, the property is about Machines alone: as a requirement it would
// exclude all types.
func Narrowing(values map[string]string, types []Offered) (requirements []corev1.NodeSelectorRequirement) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !properties.Custom(key) || !slices.ContainsFunc(types, func(o Offered) bool { _, has := o[key]; return has }) {
			continue
		}
		switch several, any := properties.LabelValues(key, values[key]); {
		case any:
			requirements = append(requirements, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists})
		case len(several) > 0:
			requirements = append(requirements, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: several})
		}
	}
	return requirements
}

// NamesTypes reports whether the values of a label are names of NodeTypes.
func NamesTypes(key string) bool {
	return v1alpha1.CanonicalKey(key) == v1alpha1.NodeTypeLabelKey || key == corev1.LabelInstanceTypeStable
}
