// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"math"
	"slices"
	"strings"

	"github.com/google/btree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Profile is what the inventory knows of a NodeType.
type Profile struct {
	// Name of the NodeType.
	Name string
	// Provider is the name of its NodeProvider.
	Provider string
	// Namespace of its BareMetalHosts.
	Namespace string
	// Selector over the labels of the BareMetalHosts. Nil selects none.
	Selector labels.Selector
	// Zone of all its servers; the hosts' own if empty.
	Zone string
	// Resources of one server.
	Resources corev1.ResourceList
	// Drivers are the DRA drivers that publish devices on one server, sorted.
	Drivers []string
	// Allocatable is what of the resources is there for pods.
	Allocatable corev1.ResourceList
	// Cost of one server, relative and without a unit.
	Cost int64
	// MaxCapacity is the greatest number of servers claimed as this type at a time; nil is no limit.
	MaxCapacity *int32
	// Properties, merged of those of the NodeProvider and those of the NodeType.
	Properties map[string]string
}

// equal tells whether two profiles are the same. Selectors are compared by what they say.
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

// bucketDegree is the width of the trees: wide enough to be flat, narrow enough for the many small ones.
const bucketDegree = 16

// bucket holds the hosts of one type whose nodes have the same labels. Requirements are met by all of them or by none.
type bucket struct {
	key    string
	labels labels.Set
	counts Counts
	// shared are the counts by the types that the hosts match, this one included.
	shared map[string]Counts
	free   *btree.BTreeG[*host]
	// small are the hosts that are too small for the type.
	small *btree.BTreeG[*host]
}

// nodeType is a type with its hosts, and counts that are kept up to date host by host.
type nodeType struct {
	profile      Profile
	labels       labels.Set
	accelerators []corev1.ResourceName
	buckets      map[string]*bucket
	counts       Counts
	zones        map[string]Counts
	// free are the buckets that have a host that can be claimed.
	free *btree.BTreeG[*bucket]
	// requirements as of the last call; nil when buckets have come or gone since.
	requirements []v1alpha1.NodeTypeRequirement
}

func newNodeType(profile Profile) *nodeType {
	return &nodeType{
		profile:      profile,
		labels:       typeLabels(profile),
		accelerators: v1alpha1.Accelerators(profile.Resources),
		buckets:      map[string]*bucket{},
		zones:        map[string]Counts{},
		free:         btree.NewG(bucketDegree, func(a, b *bucket) bool { return a.key < b.key }),
	}
}

// add puts a host into its bucket.
func (t *nodeType) add(h *host, topology []string) {
	set := hostLabels(t.profile.Zone, h.arch, topology, h.labels)
	key := bucketKey(topology, set)
	b, found := t.buckets[key]
	if !found {
		b = &bucket{key: key, labels: set, shared: map[string]Counts{}, free: btree.NewG(bucketDegree, before), small: btree.NewG(bucketDegree, before)}
		t.buckets[key] = b
		t.requirements = nil
	}
	h.buckets[t.profile.Name] = b
	if lacks := h.hardware.lacks(t.profile.Resources); lacks != "" {
		h.lacks[t.profile.Name] = lacks
		b.small.ReplaceOrInsert(h)
	}
	t.count(h, b, Counts{}, h.as(t.profile.Name, h.counts()))
}

// remove takes a host out of its bucket.
func (t *nodeType) remove(h *host) {
	b := h.buckets[t.profile.Name]
	t.count(h, b, h.as(t.profile.Name, h.counts()), Counts{})
	b.small.Delete(h)
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
		b.free.ReplaceOrInsert(h)
		t.free.ReplaceOrInsert(b)
		return
	}
	b.free.Delete(h)
	if b.free.Len() == 0 {
		t.free.Delete(b)
	}
}

// remaining is how many more servers may be claimed as this type when used are.
func (t *nodeType) remaining(used int32) int32 {
	if t.profile.MaxCapacity == nil {
		return math.MaxInt32
	}
	return max(0, *t.profile.MaxCapacity-used)
}

// insertByCost keeps the types in the order in which they are tried: cheapest first, then by name.
func insertByCost(types []*nodeType, t *nodeType) []*nodeType {
	at, _ := slices.BinarySearchFunc(types, t, byCost)
	return slices.Insert(types, at, t)
}

func removeByCost(types []*nodeType, t *nodeType) []*nodeType {
	at, _ := slices.BinarySearchFunc(types, t, byCost)
	return slices.Delete(types, at, at+1)
}

func byCost(a, b *nodeType) int {
	if a.profile.Cost != b.profile.Cost {
		if a.profile.Cost < b.profile.Cost {
			return -1
		}
		return 1
	}
	return strings.Compare(a.profile.Name, b.profile.Name)
}
