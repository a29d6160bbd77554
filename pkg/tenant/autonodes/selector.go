// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// operators in Kubernetes' terms. A selector without an operator means In.
var operators = map[v1alpha1.SelectorOperator]corev1.NodeSelectorOperator{
	"":                         corev1.NodeSelectorOpIn,
	v1alpha1.SelectorIn:        corev1.NodeSelectorOpIn,
	v1alpha1.SelectorNotIn:     corev1.NodeSelectorOpNotIn,
	v1alpha1.SelectorExists:    corev1.NodeSelectorOpExists,
	v1alpha1.SelectorNotExists: corev1.NodeSelectorOpDoesNotExist,
}

// requirementsOf translates a nodeTypeSelector, or says what is wrong with it.
//
// A property that no NodeType has needs care, unless Karpenter knows the label: then every type says something of it.
// Where a type says nothing of a label, any value passes, so a typing error would get the tenant any server. In and Exists of such a property match nothing, which a
// NodePool cannot say; the pool is not made. NotIn and NotExists of it match everything, and are left out.
func requirementsOf(selector []v1alpha1.NodeTypeSelectorRequirement, fleet fleet) ([]karpv1.NodeSelectorRequirementWithMinValues, string) {
	requirements := []karpv1.NodeSelectorRequirementWithMinValues{{
		Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{fleet.capacityType},
	}}
	for i, entry := range selector {
		operator, known := operators[entry.Operator]
		if !known {
			return nil, fmt.Sprintf("nodeTypeSelector[%d].operator is %q: write In, NotIn, Exists or NotExists", i, entry.Operator)
		}
		values := valuesOf(entry)
		takesValues := operator == corev1.NodeSelectorOpIn || operator == corev1.NodeSelectorOpNotIn
		if takesValues != (len(values) > 0) {
			return nil, fmt.Sprintf("nodeTypeSelector[%d] (%s): In and NotIn need value or values, Exists and NotExists take neither", i, entry.Property)
		}
		selects := operator == corev1.NodeSelectorOpIn || operator == corev1.NodeSelectorOpExists
		switch {
		case fleet.advertises(entry.Property), karpv1.WellKnownLabels.Has(entry.Property):
			requirements = append(requirements, karpv1.NodeSelectorRequirementWithMinValues{Key: entry.Property, Operator: operator, Values: values})
		case selects:
			return nil, fmt.Sprintf("nodeTypeSelector[%d]: no NodeType has the property %s: correct it, or give it to the NodeTypes that are meant", i, entry.Property)
		}
	}
	return requirements, ""
}

// valuesOf are value and values together, each once.
func valuesOf(entry v1alpha1.NodeTypeSelectorRequirement) []string {
	var values []string
	if entry.Value != "" {
		values = append(values, entry.Value)
	}
	for _, value := range entry.Values {
		if !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}
