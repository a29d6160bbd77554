// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// typeLabels returns the labels that all nodes of a type have: its name, its size, and its properties that can be
// labels. A label that this package sets wins over a property. choices has the properties with several values, or any:
// each node has one of them.
func typeLabels(profile Profile) (set labels.Set, choices matching.Offered) {
	set, choices = labels.Set{}, matching.Offered{}
	for key, value := range profile.Properties {
		if v1alpha1.IsTypeLabel(key) {
			continue
		}
		switch values, any := properties.LabelValues(key, value); {
		case any || len(values) > 1:
			choices[key] = values
		case len(values) == 1:
			set[key] = values[0]
		}
	}
	for key, value := range profile.Instance {
		delete(choices, key)
		set[key] = value
	}
	for key, value := range map[string]string{
		v1alpha1.NodeTypeLabelKey:      profile.Name,
		corev1.LabelInstanceTypeStable: profile.Name,
		corev1.LabelOSStable:           "linux",
		corev1.LabelTopologyZone:       profile.Zone,
		corev1.LabelArchStable:         "",
	} {
		delete(choices, key)
		if set[key] = value; value == "" {
			delete(set, key)
		}
	}
	return set, choices
}

// unmet returns the first requirement that no node of the type meets, or nil.
func (t *nodeType) unmet(requirements []labels.Requirement) *labels.Requirement {
	for n := range requirements {
		requirement := &requirements[n]
		met := requirement.Matches(t.labels)
		if _, several := t.choices[requirement.Key()]; several {
			met = t.choices.Meets(requirement)
		}
		if !met {
			return requirement
		}
	}
	return nil
}

// nodeLabels returns the labels of the node on a host. If the type leaves a value open, the requirements choose it,
// else the first one. A label that may have any value is left out if no value is asked for.
func (t *nodeType) nodeLabels(ofHost labels.Set, requirements []labels.Requirement) map[string]string {
	set := maps.Clone(map[string]string(t.labels))
	for key, values := range t.choices {
		meets := func(value string) bool {
			return !slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
				return r.Key() == key && !r.Matches(labels.Set{key: value})
			})
		}
		for n := range requirements {
			if len(t.choices[key]) == 0 && requirements[n].Key() == key && requirements[n].Operator() == selection.In {
				values = requirements[n].Values().List()
			}
		}
		if index := slices.IndexFunc(values, meets); index >= 0 {
			set[key] = values[index]
		}
	}
	maps.Copy(set, ofHost)
	return set
}

// hostLabels returns the labels that a node has from its host: zone, architecture and topology.
func hostLabels(zone, arch string, mapping topology.Mapping, given labels.Set) labels.Set {
	set := labels.Set(mapping.Labels(given))
	set[corev1.LabelArchStable] = arch
	set[corev1.LabelTopologyZone] = cmp.Or(zone, mapping.Zone(given))
	return set
}

// nodeLabels are the labels of a node of a type on a host; the host's win. It implements labels.Labels without merging,
// because requirements are matched far more often than nodes are labelled.
type nodeLabels struct{ ofHost, ofType labels.Set }

func (n nodeLabels) Has(key string) bool { return n.ofHost.Has(key) || n.ofType.Has(key) }

func (n nodeLabels) Get(key string) string {
	value, _ := n.Lookup(key)
	return value
}

func (n nodeLabels) Lookup(key string) (string, bool) {
	if value, found := n.ofHost[key]; found {
		return value, true
	}
	value, found := n.ofType[key]
	return value, found
}

// bucketKey is the same for hosts in the same domains whose nodes have the same labels. In one place, hosts that match
// no other type come first.
func bucketKey(keys []string, set labels.Set, matches []string, domains []*domain) string {
	var key strings.Builder
	for _, label := range append([]string{corev1.LabelTopologyZone, corev1.LabelArchStable}, keys...) {
		key.WriteString(set[label])
		key.WriteByte('/') // in no label value
	}
	if len(matches) > 1 {
		key.WriteString(strings.Join(matches, sharing))
	}
	for _, d := range domains {
		key.WriteString("/" + d.value)
	}
	return key.String()
}

// MaxDomains is how many topology domains of one type its status can have. It bounds the size of the status: a label
// that differs on each host is not useful as a topology label.
const MaxDomains = 1000

// sharing separates the names of the types that a host matches. No name contains it.
const sharing = ","

// domains returns the buckets of a type as its status has them, and their number. The architecture is not a domain.
func (t *nodeType) domains(remaining int32, mapping topology.Mapping) ([]v1alpha1.DomainCapacity, int) {
	type row struct {
		bucket *bucket
		held   []string
		counts Counts
	}
	keys, found := mapping.Keys(), map[string]row{}
	for _, b := range t.buckets {
		place := nodeLabels{b.labels, t.labels}
		var key strings.Builder
		for _, label := range append([]string{corev1.LabelTopologyZone}, keys...) {
			key.WriteString(place.Get(label))
			key.WriteByte('/')
		}
		held := heldKeys(b.domains, mapping)
		key.WriteString(strings.Join(b.matches, sharing) + "/" + strings.Join(held, sharing))
		found[key.String()] = row{b, held, found[key.String()].counts.plus(b.counts)}
	}
	if len(found) > MaxDomains {
		return nil, len(found)
	}
	var result []v1alpha1.DomainCapacity
	for _, key := range slices.Sorted(maps.Keys(found)) {
		place := nodeLabels{found[key].bucket.labels, t.labels}
		capacity := v1alpha1.DomainCapacity{
			Zone:     place.Get(corev1.LabelTopologyZone),
			Held:     found[key].held,
			Capacity: found[key].counts.capacity(remaining),
		}
		others := slices.DeleteFunc(slices.Clone(found[key].bucket.matches), func(name string) bool { return name == t.profile.Name })
		if len(others) > 0 {
			capacity.SharedWith = others
		}
		for _, label := range keys {
			if value, has := place.Lookup(label); has {
				if capacity.Labels == nil {
					capacity.Labels = map[string]string{}
				}
				capacity.Labels[label] = value
			}
		}
		result = append(result, capacity)
	}
	return result, len(found)
}
