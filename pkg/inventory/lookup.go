// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// Server is the record of one host.
type Server struct {
	// Eligibility says whether the host can be claimed now.
	Eligibility Eligibility
	// Types are the names of the NodeTypes that the host matches, sorted.
	Types []string
	// States has the state of the host for each of its types.
	States map[string]TypeState
}

// TypeState is the state of a host in the pool of one type.
type TypeState struct {
	State State
	// Reason is the same as in StateCount.
	Reason Reason
	// Lacks names what the host has less of than the type declares, in words; empty if it is big enough.
	Lacks string
}

// Server returns the record of a host, and whether the host is known.
func (i *Inventory) Server(key types.NamespacedName) (Server, bool) {
	i.lock.Lock()
	defer i.lock.Unlock()
	h, known := i.hosts[key]
	if !known {
		return Server{}, false
	}
	states := make(map[string]TypeState, len(h.buckets))
	for name := range h.buckets {
		state, reason := h.state(name)
		states[name] = TypeState{State: state, Reason: reason, Lacks: h.lacks[name]}
	}
	return Server{Eligibility: h.eligibility, Types: slices.Sorted(maps.Keys(states)), States: states}, true
}

// State is the state of a type's host in the pool. Each host has exactly one, so that their counts add up.
type State string

// The states of a host.
const (
	// StateAvailable: the host can be claimed now.
	StateAvailable State = "available"
	// StateClaimed: the host has a consumer, of any kind.
	StateClaimed State = "claimed"
	// StateError: the host has no consumer, and Metal3 reports an error.
	StateError State = "error"
	// StateQuarantined: a Machine on the host was given up, and the quarantine annotation is still set.
	StateQuarantined State = "quarantined"
	// StateUnavailable: the host cannot be claimed for another reason.
	StateUnavailable State = "unavailable"
)

// StateCount is the number of hosts of a type that are in a state for a reason.
type StateCount struct {
	NodeType string
	State    State
	// Reason is why a host is unavailable; Error for a claimed host that Metal3 reports an error for; empty otherwise.
	Reason Reason
	Hosts  int
}

// States counts the hosts of each type by state and reason, sorted. Every type has a count for available, claimed,
// error and quarantined, which may be zero. It visits each host once, so it is for infrequent calls.
func (i *Inventory) States() []StateCount {
	counts := map[StateCount]int{}
	i.lock.Lock()
	for name := range i.types {
		for _, state := range []State{StateAvailable, StateClaimed, StateError, StateQuarantined} {
			counts[StateCount{NodeType: name, State: state}] = 0
		}
	}
	for _, h := range i.hosts {
		for name := range h.buckets {
			state, reason := h.state(name)
			counts[StateCount{NodeType: name, State: state, Reason: reason}]++
		}
	}
	i.lock.Unlock()
	all := make([]StateCount, 0, len(counts))
	for count, hosts := range counts {
		count.Hosts = hosts
		all = append(all, count)
	}
	slices.SortFunc(all, func(a, b StateCount) int {
		return cmp.Or(cmp.Compare(a.NodeType, b.NodeType), cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}

// state returns the state of the host for a type.
func (h *host) state(typeName string) (State, Reason) {
	switch claimed := h.eligibility.Claimed || h.assumedBy != ""; {
	case claimed && h.eligibility.Error:
		return StateClaimed, ReasonError
	case claimed:
		return StateClaimed, ""
	}
	switch h.eligibility.Reason {
	case ReasonError:
		return StateError, ""
	case ReasonQuarantined:
		return StateQuarantined, ""
	}
	switch {
	case h.lacks[typeName] != "":
		return StateUnavailable, ReasonTooSmall
	case h.hardware.unknown(h.buckets[typeName].leftOut) && (h.eligibility.Reason == "" || h.eligibility.Reason == ReasonNotCleaned):
		return StateUnavailable, ReasonNotInspected
	case h.eligibility.Reason == "", h.eligibility.Reason == ReasonNotCleaned && h.buckets[typeName].anyTenant:
		return StateAvailable, ""
	}
	return StateUnavailable, h.eligibility.Reason
}

// Summary is the part of a NodeType's status about its hosts.
type Summary struct {
	// Capacity of the type. maxCapacity limits the available servers.
	Capacity v1alpha1.Capacity
	// NotReady is the number of hosts that are unavailable for a reason that Capacity does not count.
	NotReady int32
	// AllQuarantined is the number of quarantined hosts, including claimed ones.
	AllQuarantined int32
	// Suspects is the number of hosts that are quarantined on the word of tenants alone, including claimed ones.
	Suspects int32
	// Foreign is the number of hosts that are claimed by others than our Machines.
	Foreign int32
	// TooSmall are the first, by name, of the hosts that have less than the type says; Capacity has their number.
	TooSmall []SmallServer
	// Used is the number of hosts that are claimed as this type, and not as another type that they match.
	Used int32
	// Least is the least cpu and memory found in hosts that are big enough, for what the type leaves out.
	Least map[corev1.ResourceName]Least
	// Accelerators are the labels of hosts that show accelerators, as key=value, sorted: the first MaxNamed.
	Accelerators []string
	// SmallestDisk of all hosts that are big enough, in bytes; 0 if none is known.
	SmallestDisk int64
	// Zones is the capacity by zone, sorted by name. maxCapacity limits each on its own, so their sum may be more than
	// is available.
	Zones []v1alpha1.ZoneCapacity
	// Domains is the capacity by zone, topology labels and the other types that the hosts match, sorted. It is empty if
	// there are more than MaxDomains. maxCapacity limits each on its own.
	Domains []v1alpha1.DomainCapacity
	// DomainCount is the number of domains, even if they are too many for the status.
	DomainCount int
	// Requirements that claims can select on, sorted by key. Values come from all hosts, not from the free hosts only.
	Requirements []v1alpha1.NodeTypeRequirement
	// Claims is the number of the last claim that was decided, LastClaim the number of the last claim that concerns the
	// type. The counts include both.
	Claims, LastClaim int64
}

// Counts returns the counts of the type's hosts, for sentences.
func (s Summary) Counts() Counts {
	return Counts{Total: s.Capacity.Total, Claimed: s.Capacity.Claimed, Available: s.Capacity.Available, Error: s.Capacity.Error,
		NotReady: s.NotReady, Quarantined: s.Capacity.Quarantined, Maintenance: s.Capacity.Maintenance, TooSmall: s.Capacity.TooSmall,
		NotCleaned: s.Capacity.NotCleaned, AllQuarantined: s.AllQuarantined, Foreign: s.Foreign}
}

// Summary returns the summary of a type, and whether the type is known. The caller owns the result.
func (i *Inventory) Summary(name string) (Summary, bool) {
	i.lock.Lock()
	defer i.lock.Unlock()
	t, known := i.types[name]
	if !known {
		return Summary{}, false
	}
	summary := t.summary(i.used[name], i.topology)
	summary.Claims = i.claims
	return summary, true
}

// Total returns the number of a type's hosts in all states.
func (i *Inventory) Total(name string) int32 {
	i.lock.Lock()
	defer i.lock.Unlock()
	if t, known := i.types[name]; known {
		return t.counts.Total
	}
	return 0
}

// summary reads zones and buckets, never hosts.
func (t *nodeType) summary(used int32, mapping topology.Mapping) Summary {
	remaining := t.remaining(used)
	summary := Summary{Capacity: t.counts.capacity(remaining), NotReady: t.counts.NotReady, AllQuarantined: t.counts.AllQuarantined,
		Suspects: t.counts.Suspects, Foreign: t.counts.Foreign, TooSmall: t.tooSmall(requirements{}), Used: used,
		Least: t.least(), LastClaim: t.lastClaim}
	for _, name := range slices.Sorted(maps.Keys(t.zones)) {
		summary.Zones = append(summary.Zones, v1alpha1.ZoneCapacity{Name: name, Capacity: t.zones[name].capacity(remaining)})
	}
	if len(t.disks) > 0 {
		summary.SmallestDisk = slices.Min(slices.Collect(maps.Keys(t.disks)))
	}
	labels := slices.Sorted(maps.Keys(t.accelerators))
	summary.Accelerators = labels[:min(len(labels), MaxNamed)]
	summary.Domains, summary.DomainCount = t.domains(remaining, mapping)
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

// Counts of hosts. A host is in one of Claimed, Available, Error, Quarantined, Maintenance, NotCleaned and NotReady, or
// is too small and in none of them.
type Counts struct {
	Total, Claimed, Available int32
	// Error, Quarantined and Maintenance hosts are not claimed. Metal3 reports the errors; annotations mark the rest.
	Error, Quarantined, Maintenance int32
	// NotReady hosts are unavailable for another reason: inspecting, paused, detached and so on.
	NotReady int32
	// NotCleaned hosts could be claimed if they had been cleaned after their last tenant, which still can claim them.
	// They are neither available nor counted as not ready.
	NotCleaned int32
	// TooSmall hosts have less than the type says, also while claimed, in error or quarantined. They are never
	// available, and not counted as not ready, not cleaned or in maintenance.
	TooSmall int32
	// AllQuarantined are the quarantined hosts, including claimed ones.
	AllQuarantined int32
	// Suspects are quarantined on the word of tenants alone, including claimed ones.
	Suspects int32
	// Foreign hosts are claimed by others than our Machines.
	Foreign int32
}

func (c Counts) plus(other Counts) Counts {
	c.Total += other.Total
	c.Claimed += other.Claimed
	c.Available += other.Available
	c.Error += other.Error
	c.Quarantined += other.Quarantined
	c.Maintenance += other.Maintenance
	c.NotReady += other.NotReady
	c.NotCleaned += other.NotCleaned
	c.TooSmall += other.TooSmall
	c.AllQuarantined += other.AllQuarantined
	c.Suspects += other.Suspects
	c.Foreign += other.Foreign
	return c
}

func (c Counts) minus(other Counts) Counts {
	return c.plus(Counts{-other.Total, -other.Claimed, -other.Available, -other.Error, -other.Quarantined, -other.Maintenance, -other.NotReady,
		-other.NotCleaned, -other.TooSmall, -other.AllQuarantined, -other.Suspects, -other.Foreign})
}

// capacity returns the counts as the API has them. At most remaining servers are available.
func (c Counts) capacity(remaining int32) v1alpha1.Capacity {
	return v1alpha1.Capacity{
		Total: c.Total, Claimed: c.Claimed, Available: min(c.Available, remaining), Error: c.Error, Quarantined: c.Quarantined,
		Maintenance: c.Maintenance, TooSmall: c.TooSmall, NotCleaned: c.NotCleaned,
	}
}

// String describes the counts: "2 servers match, 2 claimed, 0 in error".
func (c Counts) String() string {
	return capacity.Describe(c.capacity(c.Available), c.Foreign, c.NotReady, "")
}
