// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package interceptor

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// WithNodeRequirements returns a copy of the affinity that requires the given labels of nodes in addition to what it
// requires already. The argument may be nil. It is not changed, because it may belong to the cache.
func WithNodeRequirements(affinity *corev1.Affinity, requirements ...corev1.NodeSelectorRequirement) *corev1.Affinity {
	result := &corev1.Affinity{}
	if affinity != nil {
		*result = *affinity
	}
	node := &corev1.NodeAffinity{}
	if result.NodeAffinity != nil {
		*node = *result.NodeAffinity
	}
	result.NodeAffinity = node

	// The terms are alternatives, so each of them gets the requirements.
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
