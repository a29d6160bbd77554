// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// bucket holds the hosts of one type whose nodes have the same labels. Requirements are met by all of them or by none.
type bucket struct {
	key    string
	labels labels.Set
	counts Counts
	// shared are the counts by the types that the hosts match, this one included.
	shared map[string]Counts
	// free are the hosts that can be claimed, in order.
	free []*host
	// small are the hosts that are too small for the type, in order.
	small []*host
}

// nodeType is a type with its hosts, and counts that are kept up to date host by host.
type nodeType struct {
	profile Profile
	labels  labels.Set
	matched matching.Type
	buckets map[string]*bucket
	counts  Counts
	zones   map[string]Counts
	// free are the buckets that have a host that can be claimed, in order.
	free []*bucket
	// requirements as of the last call; nil when buckets have come or gone since.
	requirements []v1alpha1.NodeTypeRequirement
}

func newNodeType(profile Profile) *nodeType {
	return &nodeType{
		profile: profile,
		labels:  typeLabels(profile),
		matched: profile.matched(),
		buckets: map[string]*bucket{},
		zones:   map[string]Counts{},
	}
}

// add puts a host into its bucket.
func (t *nodeType) add(h *host, topology []string) {
	set := hostLabels(t.profile.Zone, h.arch, topology, h.labels)
	key := bucketKey(topology, set)
	b, found := t.buckets[key]
	if !found {
		b = &bucket{key: key, labels: set, shared: map[string]Counts{}}
		t.buckets[key] = b
		t.requirements = nil
	}
	h.buckets[t.profile.Name] = b
	if lacks := h.hardware.lacks(t.profile.Resources); lacks != "" {
		h.lacks[t.profile.Name] = lacks
		b.small = insert(b.small, h, byName)
	}
	t.count(h, b, Counts{}, h.as(t.profile.Name, h.counts()))
}

// remove takes a host out of its bucket.
func (t *nodeType) remove(h *host) {
	b := h.buckets[t.profile.Name]
	t.count(h, b, h.as(t.profile.Name, h.counts()), Counts{})
	b.small = remove(b.small, h, byName)
	delete(h.buckets, t.profile.Name)
	delete(h.lacks, t.profile.Name)
	if b.counts.Total == 0 {
		delete(t.buckets, b.key)
		t.requirements = nil
	}
}

// count replaces what a host adds to the counts.
func (t *nodeType) count(h *host, b *bucket, old, new Counts) {
	b.counts = b.counts.minus(old).plus(new)
	b.share(h.matches, old, new)
	t.counts = t.counts.minus(old).plus(new)
	zone := b.labels[corev1.LabelTopologyZone]
	if t.zones[zone] = t.zones[zone].minus(old).plus(new); t.zones[zone].Total == 0 {
		delete(t.zones, zone)
	}
	if old.Available == new.Available {
		return
	}
	if new.Available > 0 {
		b.free = insert(b.free, h, byName)
		t.free = insert(t.free, b, byKey)
		return
	}
	if b.free = remove(b.free, h, byName); len(b.free) == 0 {
		t.free = remove(t.free, b, byKey)
	}
}

// remaining is how many more servers may be claimed as this type when used are.
func (t *nodeType) remaining(used int32) int32 {
	if t.profile.MaxCapacity == nil {
		return math.MaxInt32
	}
	return max(0, *t.profile.MaxCapacity-used)
}

// insert adds an item to a sorted slice, once.
func insert[T any](sorted []T, one T, compare func(a, b T) int) []T {
	at, found := slices.BinarySearchFunc(sorted, one, compare)
	if found {
		return sorted
	}
	return slices.Insert(sorted, at, one)
}

// remove takes an item out of a sorted slice, if it is there.
func remove[T any](sorted []T, one T, compare func(a, b T) int) []T {
	at, found := slices.BinarySearchFunc(sorted, one, compare)
	if !found {
		return sorted
	}
	return slices.Delete(sorted, at, at+1)
}

// byCost is the order in which types are tried: cheapest first, then by name.
func byCost(a, b *nodeType) int {
	return cmp.Or(cmp.Compare(a.profile.Cost, b.profile.Cost), strings.Compare(a.profile.Name, b.profile.Name))
}

func byKey(a, b *bucket) int { return strings.Compare(a.key, b.key) }
