// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// bucket holds the hosts of one type whose nodes have the same labels, and that match the same types. All of them meet
// a requirement, or none does.
type bucket struct {
	key    string
	labels labels.Set
	counts Counts
	// matches are the types that the hosts match, this one included, sorted; shared is the same in one string.
	matches []string
	shared  string
	// free are the hosts that can be claimed, in order, hosts with a fault last. Hosts for any tenant are under "", and
	// hosts that were not cleaned under their tenant.
	free map[string][]*host
	// anyTenant is true if any tenant may have the hosts that were not cleaned.
	anyTenant bool
	// leftOut has cpu or memory if the type does not say it: hosts that were not inspected are then unavailable.
	leftOut []corev1.ResourceName
	// domains that all the hosts are in, whose servers are for one tenant at a time.
	domains []*domain
	// small are the hosts that are too small for the type, in order.
	small []*host
}

// nodeType is a type with its hosts, and counts that are kept up to date host by host.
type nodeType struct {
	profile Profile
	labels  labels.Set
	// choices are the labels that differ between nodes of the type: each node has one of several values, or any.
	choices matching.Offered
	matched matching.Type
	buckets map[string]*bucket
	counts  Counts
	zones   map[string]Counts
	// disks counts the hosts that are big enough by the size of their smallest disk, if that is known.
	disks map[int64]int32
	// found has, for cpu and memory that the type leaves out, the hosts that are big enough by their amount, in order.
	found map[corev1.ResourceName]map[int64][]*host
	// accelerators counts the hosts by the label that shows their accelerators.
	accelerators map[string]int32
	// free are the buckets that have a host that can be claimed, in order, by the tenant as in the buckets.
	free map[string][]*bucket
	// lastClaim is the number of the last claim that concerns a host of the type.
	lastClaim int64
	// requirements as of the last call; nil when buckets have come or gone since.
	requirements []v1alpha1.NodeTypeRequirement
}

func newNodeType(profile Profile) *nodeType {
	set, choices := typeLabels(profile)
	found := map[corev1.ResourceName]map[int64][]*host{}
	for _, name := range profile.LeftOut {
		found[name] = map[int64][]*host{}
	}
	return &nodeType{
		profile: profile,
		labels:  set,
		choices: choices,
		matched: profile.matched(),
		buckets: map[string]*bucket{},
		zones:   map[string]Counts{},
		disks:   map[int64]int32{},
		found:   found,
		free:    map[string][]*bucket{},

		accelerators: map[string]int32{},
	}
}

// add puts a host into its bucket.
func (t *nodeType) add(h *host, mapping topology.Mapping) {
	set := hostLabels(t.profile.Zone, h.arch, mapping, h.labels)
	maps.Copy(set, v1alpha1.TypeLabels(h.matches))
	key := bucketKey(mapping.Keys(), set, h.matches, h.domains)
	b, found := t.buckets[key]
	if !found {
		b = &bucket{key: key, labels: set, matches: h.matches, shared: strings.Join(h.matches, sharing),
			free: map[string][]*host{}, anyTenant: t.profile.AnyTenant, leftOut: t.profile.LeftOut, domains: h.domains}
		t.buckets[key] = b
		t.requirements = nil
	}
	h.buckets[t.profile.Name] = b
	if label := v1alpha1.AcceleratorLabel(h.labels); label != "" {
		t.accelerators[label]++
	}
	if lacks := h.hardware.lacks(t.profile.Resources); lacks != "" {
		h.lacks[t.profile.Name] = lacks
		b.small = insert(b.small, h, byName)
	} else {
		if size := h.hardware.smallestDisk; size > 0 {
			t.disks[size]++
		}
		for _, name := range t.profile.LeftOut {
			if size := h.hardware.amount(name); size > 0 {
				t.found[name][size] = insert(t.found[name][size], h, byName)
			}
		}
	}
	t.count(h, b, Counts{}, h.countedAs(t.profile.Name, h.counts()))
}

// remove takes a host out of its bucket.
func (t *nodeType) remove(h *host) {
	b := h.buckets[t.profile.Name]
	t.count(h, b, h.countedAs(t.profile.Name, h.counts()), Counts{})
	b.small = remove(b.small, h, byName)
	if label := v1alpha1.AcceleratorLabel(h.labels); label != "" {
		if t.accelerators[label]--; t.accelerators[label] == 0 {
			delete(t.accelerators, label)
		}
	}
	if size := h.hardware.smallestDisk; h.lacks[t.profile.Name] == "" && size > 0 {
		if t.disks[size]--; t.disks[size] == 0 {
			delete(t.disks, size)
		}
	}
	for _, name := range t.profile.LeftOut {
		size := h.hardware.amount(name)
		if t.found[name][size] = remove(t.found[name][size], h, byName); len(t.found[name][size]) == 0 {
			delete(t.found[name], size)
		}
	}
	delete(h.buckets, t.profile.Name)
	delete(h.lacks, t.profile.Name)
	if b.counts.Total == 0 {
		delete(t.buckets, b.key)
		t.requirements = nil
	}
}

// count replaces a host's share in the counts.
func (t *nodeType) count(h *host, b *bucket, old, new Counts) {
	b.counts = b.counts.minus(old).plus(new)
	t.counts = t.counts.minus(old).plus(new)
	zone := b.labels[corev1.LabelTopologyZone]
	if t.zones[zone] = t.zones[zone].minus(old).plus(new); t.zones[zone].Total == 0 {
		delete(t.zones, zone)
	}
	was, wasFree := h.freeFor(old)
	is, isFree := h.freeFor(new)
	if was == is && wasFree == isFree {
		return
	}
	if wasFree {
		if removeAt(b.free, was, h, byFault); len(b.free[was]) == 0 {
			removeAt(t.free, was, b, byKey)
		}
	}
	if isFree {
		b.free[is] = insert(b.free[is], h, byFault)
		t.free[is] = insert(t.free[is], b, byKey)
	}
}

// removeAt takes an item out of one of several sorted slices. It keeps an empty one only under "": tenants come and go.
func removeAt[T any](sorted map[string][]T, key string, value T, compare func(a, b T) int) {
	if sorted[key] = remove(sorted[key], value, compare); len(sorted[key]) == 0 && key != "" {
		delete(sorted, key)
	}
}

// remaining returns how many more servers may be claimed as this type when used are.
func (t *nodeType) remaining(used int32) int32 {
	if t.profile.MaxCapacity == nil {
		return math.MaxInt32
	}
	return max(0, *t.profile.MaxCapacity-used)
}

// insert adds an item to a sorted slice, once.
func insert[T any](sorted []T, value T, compare func(a, b T) int) []T {
	index, found := slices.BinarySearchFunc(sorted, value, compare)
	if found {
		return sorted
	}
	return slices.Insert(sorted, index, value)
}

// remove takes an item out of a sorted slice, if it is there.
func remove[T any](sorted []T, value T, compare func(a, b T) int) []T {
	index, found := slices.BinarySearchFunc(sorted, value, compare)
	if !found {
		return sorted
	}
	return slices.Delete(sorted, index, index+1)
}

// byCost is the order of trying types: cheapest first, then by name.
func byCost(a, b *nodeType) int {
	return cmp.Or(cmp.Compare(a.profile.Cost, b.profile.Cost), strings.Compare(a.profile.Name, b.profile.Name))
}

func byKey(a, b *bucket) int { return strings.Compare(a.key, b.key) }

// Profile is the inventory's record of a NodeType.
type Profile struct {
	Name string
	// MadeBy is the NodeProvider that has made the type, empty if it was made by hand.
	MadeBy string
	// Namespace of its BareMetalHosts.
	Namespace string
	// Selector over the labels of the BareMetalHosts. Nil selects none.
	Selector labels.Selector
	// Zone of all its servers; the hosts' own if empty.
	Zone string
	// Resources that a server must have, as far as inspection finds them.
	Resources corev1.ResourceList
	// LeftOut has cpu or memory if the type leaves it out: a server may have any amount that inspection has found.
	LeftOut []corev1.ResourceName
	// Drivers are the DRA drivers that publish devices on one server, sorted.
	Drivers []string
	// Undeclared are signs of accelerators that the type does not declare.
	Undeclared []string
	// Server has the resources that the type declares for each server.
	Server capacity.Server
	// Instance are the labels for the size of the servers.
	Instance map[string]string
	// AnyTenant is true if any tenant may have the servers that were not cleaned.
	AnyTenant bool
	// Exclusive are the keys of the labels of hosts whose domains are for one tenant each, sorted.
	Exclusive []string
	// Cost of one server, relative and without a unit.
	Cost int64
	// MaxCapacity is the greatest number of servers claimed as this type at a time; nil is no limit.
	MaxCapacity *int32
	// Properties of the NodeProvider and the NodeType, merged.
	Properties map[string]string
}

// matched returns the type in the form that requests are compared with.
func (p Profile) matched() matching.Type {
	return matching.NewType(p.Name, p.MadeBy, p.Server, p.Drivers, p.Undeclared)
}

// equal reports whether two profiles are the same. Selectors are compared by their text.
func (p Profile) equal(other Profile) bool {
	return selectorString(p.Selector) == selectorString(other.Selector) &&
		equality.Semantic.DeepEqual(p.withoutSelector(), other.withoutSelector())
}

func (p Profile) withoutSelector() Profile {
	p.Selector = labels.Nothing() // comparing nil selectors panics
	return p
}

func selectorString(selector labels.Selector) string {
	if selector == nil {
		return ""
	}
	return "selector " + selector.String() // so that the empty selector differs from none
}

func (p Profile) selects(h *host) bool {
	return p.Selector != nil && h.key.Namespace == p.Namespace && p.Selector.Matches(labels.Set(h.labels))
}
