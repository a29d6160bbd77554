// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// anyServer is met by every server. A Machine must have a requirement, and the NodeClaim of a static NodePool may have none
// that hosts and types know.
var anyServer = corev1.NodeSelectorRequirement{
	Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{string(corev1.Linux)},
}

// requirementsFor are those of a NodeClaim that servers can meet. No server meets those for Karpenter and the NodePool, such
// as the name of the NodePool or labels that the node will get. Labels that are selectable in core stay even if no type has
// them: without one a server that does not have it could be claimed.
func requirementsFor(nodeClaim *karpenterv1.NodeClaim, advertised func(key string) bool) []corev1.NodeSelectorRequirement {
	var result []corev1.NodeSelectorRequirement
	for _, requirement := range nodeClaim.Spec.Requirements {
		if !instancetypes.Selectable(requirement.Key) {
			continue
		}
		if !advertised(requirement.Key) && !karpenterv1.WellKnownLabels.Has(requirement.Key) {
			continue
		}
		result = append(result, nodeSelectorRequirement(requirement))
	}
	if len(result) == 0 {
		result = []corev1.NodeSelectorRequirement{anyServer}
	}
	slices.SortFunc(result, func(a, b corev1.NodeSelectorRequirement) int {
		if order := strings.Compare(a.Key, b.Key); order != 0 {
			return order
		}
		return strings.Compare(string(a.Operator), string(b.Operator))
	})
	return result
}

// nodeSelectorRequirement is the same with the operators of Kubernetes: Karpenter has two more.
func nodeSelectorRequirement(requirement karpenterv1.NodeSelectorRequirementWithMinValues) corev1.NodeSelectorRequirement {
	result := corev1.NodeSelectorRequirement{Key: requirement.Key, Operator: requirement.Operator, Values: slices.Clone(requirement.Values)}
	switch requirement.Operator {
	case karpenterv1.NodeSelectorOpGte:
		result.Operator, result.Values = corev1.NodeSelectorOpGt, addToAll(requirement.Values, -1)
	case karpenterv1.NodeSelectorOpLte:
		result.Operator, result.Values = corev1.NodeSelectorOpLt, addToAll(requirement.Values, 1)
	}
	return result
}

// addToAll adds to the number that Gte and Lte compare with. What is not a number is left as it is: the manager refuses it
// and names it.
func addToAll(values []string, by int64) []string {
	result := make([]string, 0, len(values))
	for _, value := range values {
		if number, err := strconv.ParseInt(value, 10, 64); err == nil {
			value = strconv.FormatInt(number+by, 10)
		}
		result = append(result, value)
	}
	return result
}
