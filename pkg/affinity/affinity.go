// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package affinity knows how requirements are added to the node affinity of a pod.
package affinity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Require returns the affinity with the requirements in each of the alternatives that it has, or with the requirements
// alone. The argument may be nil. It is not changed: it may be shared with a cache.
func Require(affinity *corev1.Affinity, requirements ...corev1.NodeSelectorRequirement) *corev1.Affinity {
	result := &corev1.Affinity{}
	if affinity != nil {
		*result = *affinity
	}
	node := &corev1.NodeAffinity{}
	if result.NodeAffinity != nil {
		*node = *result.NodeAffinity
	}
	result.NodeAffinity = node

	var terms []corev1.NodeSelectorTerm
	if node.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = slices.Clone(node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	}
	if len(terms) == 0 {
		terms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range terms {
		terms[i].MatchExpressions = append(slices.Clone(terms[i].MatchExpressions), requirements...)
	}
	node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	return result
}
