// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package unschedulable

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// listed is how many values or places a message names.
const listed = 3

// requirement is one requirement of a pod or a NodePool, with the words of its author.
type requirement struct {
	*labels.Requirement
	key, text string
}

// newRequirement converts a requirement. One that is not valid is met by no server.
func newRequirement(from corev1.NodeSelectorRequirement) requirement {
	one := requirement{key: from.Key, text: describe(from)}
	if current, deprecated := karpenterv1.NormalizedLabels[from.Key]; deprecated {
		one.key, from.Key = current, current
	}
	// Only NodePools have these two operators. Their values are whole numbers.
	if bound, err := strconv.Atoi(strings.Join(from.Values, ",")); err == nil {
		switch from.Operator {
		case karpenterv1.NodeSelectorOpGte:
			from.Operator, from.Values = corev1.NodeSelectorOpGt, []string{strconv.Itoa(bound - 1)}
		case karpenterv1.NodeSelectorOpLte:
			from.Operator, from.Values = corev1.NodeSelectorOpLt, []string{strconv.Itoa(bound + 1)}
		}
	}
	one.Requirement, _ = matching.Requirement(nil, from)
	return one
}

// describe writes a requirement as in YAML: "rack In [a, b]".
func describe(from corev1.NodeSelectorRequirement) string {
	if len(from.Values) == 0 {
		return fmt.Sprintf("%s %s", from.Key, from.Operator)
	}
	values := slices.Sorted(slices.Values(from.Values))
	if len(values) > listed {
		values = append(values[:listed], "...")
	}
	return fmt.Sprintf("%s %s [%s]", from.Key, from.Operator, strings.Join(values, ", "))
}

// selector is what a pod requires of the labels of its node.
type selector struct {
	// required must all be met.
	required []requirement
	// terms are alternatives: all of one term must be met.
	terms [][]requirement
}

// newSelector leaves out the labels that servers do not decide: NodePools can give any other label to their nodes, and
// Karpenter itself reports a label that no NodePool gives.
func newSelector(pod *corev1.Pod, nodeTypes []v1alpha1.NodeType) selector {
	known := serverLabels(nodeTypes)
	convert := func(from []corev1.NodeSelectorRequirement) []requirement {
		list := make([]requirement, 0, len(from))
		for _, one := range from {
			if one := newRequirement(one); known.Has(one.key) {
				list = append(list, one)
			}
		}
		return list
	}
	var byNodeSelector []corev1.NodeSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		byNodeSelector = append(byNodeSelector, corev1.NodeSelectorRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{pod.Spec.NodeSelector[key]},
		})
	}
	s := selector{required: convert(byNodeSelector)}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return s
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		s.terms = append(s.terms, convert(term.MatchExpressions))
	}
	return s
}

// serverLabels are the labels that servers decide: those of the NodeTypes, and those that Karpenter has been told to leave
// to the servers, even if no server has them.
func serverLabels(nodeTypes []v1alpha1.NodeType) sets.Set[string] {
	known := sets.New(corev1.LabelInstanceTypeStable, v1alpha1.NodeTypeLabelKey, corev1.LabelTopologyZone, corev1.LabelOSStable)
	for key := range karpenterv1.WellKnownLabels {
		if instancetypes.Selectable(key) {
			known.Insert(key)
		}
	}
	for i := range nodeTypes {
		for _, offered := range nodeTypes[i].Status.Requirements {
			known.Insert(offered.Key)
		}
	}
	return known
}

// unmet returns the requirements that none of these servers meets, in the author's words. If no term is met it includes
// those of the term that is closest.
func (s selector) unmet(offered matching.Offered) []string {
	unmet := unmetOf(s.required, offered)
	var closest []string
	for i, term := range s.terms {
		missing := unmetOf(term, offered)
		if len(missing) == 0 {
			return unmet
		}
		if i == 0 || len(missing) < len(closest) {
			closest = missing
		}
	}
	return append(unmet, closest...)
}

func unmetOf(requirements []requirement, offered matching.Offered) (unmet []string) {
	for _, one := range requirements {
		if one.Requirement == nil || !offered.Meets(one.Requirement) {
			unmet = append(unmet, one.text)
		}
	}
	return unmet
}

// names returns whether the selector says anything about a label.
func (s selector) names(key string) bool {
	isKey := func(one requirement) bool { return one.key == key }
	return slices.ContainsFunc(s.required, isKey) ||
		slices.ContainsFunc(s.terms, func(term []requirement) bool { return slices.ContainsFunc(term, isKey) })
}
