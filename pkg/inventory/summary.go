// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// Summary is the part of a NodeType's status about its hosts.
type Summary struct {
	// Capacity of the type. What is available is limited by maxCapacity.
	Capacity v1alpha1.Capacity
	// NotReady is the number of hosts that are neither claimed, in error, quarantined nor too small, and not to be had
	// either.
	NotReady int32
	// TooSmall are the first, by name, of the hosts that have less than the type says; Capacity has their number.
	TooSmall []SmallServer
	// Used is the number of hosts that are claimed as this type, and not as another one that they match too.
	Used int32
	// SmallestDisk of all hosts that are big enough, in bytes; 0 if none is known.
	SmallestDisk int64
	// Zones is the capacity by zone, sorted by name. Each is limited by maxCapacity on its own, so that with a
	// maxCapacity their sum may be more than is available.
	Zones []v1alpha1.ZoneCapacity
	// Domains is the capacity by zone, topology labels and the other types that the hosts match, sorted. It is empty if
	// there are more than MaxDomains. Each is limited by maxCapacity on its own.
	Domains []v1alpha1.DomainCapacity
	// DomainCount is how many domains there are, also if they are too many for the status.
	DomainCount int
	// Requirements that claims can select on, sorted by key. Values come from all hosts, not from the free ones only.
	Requirements []v1alpha1.NodeTypeRequirement
}

// Counts of the type's hosts, for sentences.
func (s Summary) Counts() Counts {
	return Counts{Total: s.Capacity.Total, Claimed: s.Capacity.Claimed, Available: s.Capacity.Available, Error: s.Capacity.Error,
		NotReady: s.NotReady, Quarantined: s.Capacity.Quarantined, TooSmall: s.Capacity.TooSmall}
}

// Summary of a type, and whether the type is known. The caller owns what it gets.
func (i *Inventory) Summary(name string) (Summary, bool) {
	i.lock.Lock()
	defer i.lock.Unlock()
	t, known := i.types[name]
	if !known {
		return Summary{}, false
	}
	return t.summary(i.used[name], i.topology), true
}

// summary reads zones and buckets, never hosts.
func (t *nodeType) summary(used int32, topology []string) Summary {
	remaining := t.remaining(used)
	summary := Summary{Capacity: t.counts.capacity(remaining), NotReady: t.counts.NotReady, TooSmall: t.tooSmall(nil), Used: used}
	for _, name := range slices.Sorted(maps.Keys(t.zones)) {
		summary.Zones = append(summary.Zones, v1alpha1.ZoneCapacity{Name: name, Capacity: t.zones[name].capacity(remaining)})
	}
	if len(t.disks) > 0 {
		summary.SmallestDisk = slices.Min(slices.Collect(maps.Keys(t.disks)))
	}
	summary.Domains, summary.DomainCount = t.domains(remaining, topology)
	if t.requirements == nil {
		t.requirements = t.summarizeRequirements()
	}
	summary.Requirements = slices.Clone(t.requirements)
	for i := range summary.Requirements {
		summary.Requirements[i].Values = slices.Clone(summary.Requirements[i].Values)
	}
	return summary
}

func (t *nodeType) summarizeRequirements() []v1alpha1.NodeTypeRequirement {
	values := map[string]sets.Set[string]{}
	overridden := map[string]int{} // in how many buckets the host's label hides the type's
	insert := func(key, value string) {
		if values[key] == nil {
			values[key] = sets.Set[string]{}
		}
		values[key].Insert(value)
	}
	for _, b := range t.buckets {
		for key, value := range b.labels {
			insert(key, value)
			overridden[key]++
		}
	}
	for key, value := range t.labels {
		if overridden[key] == 0 || overridden[key] < len(t.buckets) {
			insert(key, value)
		}
	}
	for key, several := range t.choices {
		if values[key] = sets.New(several...); overridden[key] > 0 {
			delete(values, key)
		}
	}
	requirements := []v1alpha1.NodeTypeRequirement{}
	for key, set := range values {
		requirements = append(requirements, v1alpha1.NodeTypeRequirement{Key: key, Values: sets.List(set)})
	}
	slices.SortFunc(requirements, func(a, b v1alpha1.NodeTypeRequirement) int { return strings.Compare(a.Key, b.Key) })
	return requirements
}

// Counts of hosts. A host that is claimed and in error counts as both.
type Counts struct {
	Total, Claimed, Available, Error int32
	// NotReady hosts are neither claimed, in error, quarantined nor too small, and still not to be had: inspecting, paused, detached and
	// so on.
	NotReady int32
	// Quarantined hosts are not claimed until an operator removes the annotation, also if other reasons apply.
	Quarantined int32
	// TooSmall hosts have less than the type, also if other reasons apply. They are never available, and not counted as
	// not ready.
	TooSmall int32
}

func (c Counts) plus(other Counts) Counts {
	c.Total += other.Total
	c.Claimed += other.Claimed
	c.Available += other.Available
	c.Error += other.Error
	c.NotReady += other.NotReady
	c.Quarantined += other.Quarantined
	c.TooSmall += other.TooSmall
	return c
}

func (c Counts) minus(other Counts) Counts {
	return c.plus(Counts{-other.Total, -other.Claimed, -other.Available, -other.Error, -other.NotReady, -other.Quarantined, -other.TooSmall})
}

// capacity in the form of the API. At most remaining servers are available.
func (c Counts) capacity(remaining int32) v1alpha1.Capacity {
	return v1alpha1.Capacity{
		Total: c.Total, Claimed: c.Claimed, Available: min(c.Available, remaining), Error: c.Error, Quarantined: c.Quarantined,
		TooSmall: c.TooSmall,
	}
}

// String describes the counts: "2 servers match, 2 claimed, 0 in error".
func (c Counts) String() string {
	return capacity.Describe(c.capacity(c.Available), c.NotReady, "")
}
