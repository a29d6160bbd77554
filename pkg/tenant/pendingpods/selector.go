// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package pendingpods

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// namedValues bounds how many values of a requirement a clause names.
const namedValues = 3

// requirement is one requirement of a pod, ready to be evaluated.
type requirement struct {
	*scheduling.Requirement
	text string
}

// selector is what a pod wants of the labels of its node: what all must meet, and terms of which one is enough. A key
// that no NodeType has, and that is no topology label, is left out: NodePools can give any label to their nodes, and Karpenter says it when none does.
type selector struct {
	required []requirement
	terms    [][]requirement
}

func selectorOf(pod *corev1.Pod, types []v1alpha1.NodeType) selector {
	known := sets.New(corev1.LabelInstanceTypeStable, v1alpha1.NodeTypeLabelKey, corev1.LabelTopologyZone, corev1.LabelOSStable)
	// Those that Karpenter was told of are the servers' own, whether or not one carries them.
	for key := range karpenterv1.WellKnownLabels {
		if instancetypes.Selectable(key) {
			known.Insert(key)
		}
	}
	for i := range types {
		for _, offered := range types[i].Status.Requirements {
			known.Insert(offered.Key)
		}
	}
	var s selector
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		s.required = appendRequirement(s.required, known, corev1.NodeSelectorRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{pod.Spec.NodeSelector[key]},
		})
	}
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return s
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		requirements := []requirement{}
		for _, expression := range term.MatchExpressions {
			requirements = appendRequirement(requirements, known, expression)
		}
		s.terms = append(s.terms, requirements)
	}
	return s
}

func appendRequirement(list []requirement, known sets.Set[string], r corev1.NodeSelectorRequirement) []requirement {
	evaluable := scheduling.NewRequirement(r.Key, r.Operator, r.Values...)
	// Its key is the present-day name of r's: Kubernetes has renamed some.
	if !known.Has(evaluable.Key) {
		return list
	}
	return append(list, requirement{Requirement: evaluable, text: textOf(r)})
}

// textOf writes a requirement as people do: "rack In [a, b]".
func textOf(r corev1.NodeSelectorRequirement) string {
	if len(r.Values) == 0 {
		return fmt.Sprintf("%s %s", r.Key, r.Operator)
	}
	values := slices.Sorted(slices.Values(r.Values))
	if len(values) > namedValues {
		values = append(values[:namedValues], "...")
	}
	return fmt.Sprintf("%s %s [%s]", r.Key, r.Operator, strings.Join(values, ", "))
}

// unmet returns what servers of the type cannot meet, in words. Of several terms it is the one that is nearest to
// being met.
func (s selector) unmet(nodeType *v1alpha1.NodeType) []string {
	unmet := unmetOf(s.required, nodeType)
	var nearest []string
	for i, term := range s.terms {
		missing := unmetOf(term, nodeType)
		if len(missing) == 0 {
			return unmet
		}
		if i == 0 || len(missing) < len(nearest) {
			nearest = missing
		}
	}
	return append(unmet, nearest...)
}

func unmetOf(requirements []requirement, nodeType *v1alpha1.NodeType) []string {
	var unmet []string
	for _, r := range requirements {
		if !r.metBy(nodeType) {
			unmet = append(unmet, r.text)
		}
	}
	return unmet
}

func (r requirement) metBy(nodeType *v1alpha1.NodeType) bool {
	values, has := valuesOf(nodeType, r.Key)
	if !has {
		return r.Operator() == corev1.NodeSelectorOpNotIn || r.Operator() == corev1.NodeSelectorOpDoesNotExist
	}
	// No host of the type has told its value yet, so nothing speaks against it.
	return len(values) == 0 || slices.ContainsFunc(values, r.Has)
}

// valuesOf returns the values of a label that servers of the type have. It reports false if they do not have it.
func valuesOf(nodeType *v1alpha1.NodeType, key string) (values []string, has bool) {
	for _, offered := range nodeType.Status.Requirements {
		if offered.Key == key {
			return offered.Values, true
		}
	}
	switch key {
	case corev1.LabelInstanceTypeStable, v1alpha1.NodeTypeLabelKey:
		return []string{nodeType.Name}, true
	case corev1.LabelOSStable:
		return []string{string(corev1.Linux)}, true
	case corev1.LabelTopologyZone, corev1.LabelArchStable:
		return nil, true
	}
	return nil, false
}

// zones returns the zones of the type that the pod may be in.
func (s selector) zones(nodeType *v1alpha1.NodeType) []v1alpha1.ZoneCapacity {
	accepts := func(requirements []requirement, zone string) bool {
		return !slices.ContainsFunc(requirements, func(r requirement) bool {
			return r.Key == corev1.LabelTopologyZone && !r.Has(zone)
		})
	}
	var zones []v1alpha1.ZoneCapacity
	for _, zone := range nodeType.Status.Zones {
		anyTerm := len(s.terms) == 0 || slices.ContainsFunc(s.terms, func(term []requirement) bool {
			return len(unmetOf(term, nodeType)) == 0 && accepts(term, zone.Name)
		})
		if anyTerm && accepts(s.required, zone.Name) {
			zones = append(zones, zone)
		}
	}
	return zones
}
