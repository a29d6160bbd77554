// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package pendingpods

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// namedPlaces bounds how many places a clause names.
const namedPlaces = 3

// placesOf counts the servers of a type in the places that the pod may be in. Where is empty if it may be in all of
// them, and otherwise names them: " in rack r1".
func placesOf(nodeType *v1alpha1.NodeType, selector selector) (capacity v1alpha1.Capacity, where string) {
	if len(nodeType.Status.Domains) == 0 {
		return zonesOf(nodeType, selector)
	}
	var names []string
	for _, domain := range nodeType.Status.Domains {
		place := labels.Set{corev1.LabelTopologyZone: domain.Zone}
		maps.Copy(place, domain.Labels)
		if !selector.accepts(nodeType, place) {
			continue
		}
		capacity = plus(capacity, domain.Capacity)
		if name := selector.placeName(place); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	whole := nodeType.Status.Capacity
	if capacity.Total == whole.Total && capacity.Claimed == whole.Claimed && len(names) > 0 {
		return whole, ""
	}
	slices.Sort(names)
	if len(names) > namedPlaces {
		names = append(names[:namedPlaces], "...")
	}
	return capacity, " in " + strings.Join(names, ", ")
}

// zonesOf is placesOf for a type that tells only its zones.
func zonesOf(nodeType *v1alpha1.NodeType, selector selector) (capacity v1alpha1.Capacity, where string) {
	zones := selector.zones(nodeType)
	if len(zones) == len(nodeType.Status.Zones) {
		return nodeType.Status.Capacity, ""
	}
	var names []string
	for _, zone := range zones {
		names = append(names, zone.Name)
		capacity = plus(capacity, zone.Capacity)
	}
	return capacity, " in " + strings.Join(names, ", ")
}

func plus(a, b v1alpha1.Capacity) v1alpha1.Capacity {
	return v1alpha1.Capacity{
		Total: a.Total + b.Total, Claimed: a.Claimed + b.Claimed, Available: a.Available + b.Available, Error: a.Error + b.Error,
		Quarantined: a.Quarantined + b.Quarantined, TooSmall: a.TooSmall + b.TooSmall,
	}
}

// accepts tells whether the pod may be in a place of the type.
func (s selector) accepts(nodeType *v1alpha1.NodeType, place labels.Set) bool {
	met := func(r requirement) bool {
		if _, told := valuesOf(nodeType, r.Key); !told || !s.isPlace(nodeType, r.Key) {
			return true // not a label of places: the type as a whole meets it or not
		}
		if value, has := place[r.Key]; has {
			return r.Has(value)
		}
		return r.Operator() == corev1.NodeSelectorOpNotIn || r.Operator() == corev1.NodeSelectorOpDoesNotExist
	}
	all := func(requirements []requirement) bool {
		return !slices.ContainsFunc(requirements, func(r requirement) bool { return !met(r) })
	}
	return all(s.required) && (len(s.terms) == 0 || slices.ContainsFunc(s.terms, func(term []requirement) bool {
		return len(unmetOf(term, nodeType)) == 0 && all(term)
	}))
}

// isPlace tells whether a label differs from place to place.
func (s selector) isPlace(nodeType *v1alpha1.NodeType, key string) bool {
	return key == corev1.LabelTopologyZone || slices.ContainsFunc(nodeType.Status.Domains, func(domain v1alpha1.DomainCapacity) bool {
		_, has := domain.Labels[key]
		return has
	})
}

// placeName names a place by those of its labels that the pod asks for: "rack r1". A zone is named without its label.
func (s selector) placeName(place labels.Set) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(place)) {
		asked := func(r requirement) bool { return r.Key == key }
		if !slices.ContainsFunc(s.required, asked) && !slices.ContainsFunc(s.terms, func(term []requirement) bool { return slices.ContainsFunc(term, asked) }) {
			continue
		}
		if key == corev1.LabelTopologyZone {
			parts = append(parts, place[key])
		} else {
			parts = append(parts, key+" "+place[key])
		}
	}
	return strings.Join(parts, " ")
}
