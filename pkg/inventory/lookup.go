// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
)

// Server is what is known of one host.
type Server struct {
	// Eligibility is whether it can be claimed now.
	Eligibility Eligibility
	// Types are the names of the NodeTypes that it matches, sorted.
	Types []string
}

// Matching counts the hosts that a selector selects.
type Matching struct {
	// Total is how many there are.
	Total int
	// Types is how many of them each known NodeType selects too, by the name of the type. Those that select none of
	// them are not in it.
	Types map[string]int
}

// Server returns what is known of a host, and whether it is known at all.
func (i *Inventory) Server(key types.NamespacedName) (Server, bool) {
	i.lock.Lock()
	defer i.lock.Unlock()
	h, known := i.hosts[key]
	if !known {
		return Server{}, false
	}
	return Server{Eligibility: h.eligibility, Types: slices.Sorted(maps.Keys(h.buckets))}, true
}

// Matching counts the hosts of a namespace that a selector selects. It looks at the hosts that have the rarest of the
// labels that the selector asks for, and at all of them only if it asks for none by value.
func (i *Inventory) Matching(namespace string, selector labels.Selector) Matching {
	result := Matching{Types: map[string]int{}}
	i.lock.Lock()
	defer i.lock.Unlock()
	i.candidates(namespace, selector, func(h *host) {
		if h.key.Namespace != namespace || !selector.Matches(labels.Set(h.labels)) {
			return
		}
		result.Total++
		for name := range h.buckets {
			result.Types[name]++
		}
	})
	return result
}

// Overlaps counts the hosts of a namespace that two selectors have in common, for each pair of them that has any: the
// one that comes later first. A nil selector selects nothing. It looks at each host once for each selector at most,
// however many pairs there are.
func (i *Inventory) Overlaps(namespace string, selectors []labels.Selector) map[[2]int]int {
	selected := map[*host][]int{}
	common := map[[2]int]int{}
	i.lock.Lock()
	defer i.lock.Unlock()
	for n, selector := range selectors {
		if selector == nil {
			continue
		}
		i.candidates(namespace, selector, func(h *host) {
			if h.key.Namespace != namespace || !selector.Matches(labels.Set(h.labels)) {
				return
			}
			for _, earlier := range selected[h] {
				common[[2]int{n, earlier}]++
			}
			selected[h] = append(selected[h], n)
		})
	}
	return common
}

// candidates visits hosts among which are all that the selector selects, each at most once.
func (i *Inventory) candidates(namespace string, selector labels.Selector, visit func(*host)) {
	requirements, selectable := selector.Requirements()
	if !selectable {
		return
	}
	if i.labelled == nil {
		requirements = nil
	}
	var sets []map[*host]struct{}
	fewest := len(i.hosts)
	for n := range requirements {
		switch requirements[n].Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
		default:
			continue
		}
		var these []map[*host]struct{}
		count := 0
		for value := range requirements[n].Values() {
			set := i.labelled[label{namespace, requirements[n].Key(), value}]
			these, count = append(these, set), count+len(set)
		}
		if sets == nil || count < fewest {
			sets, fewest = these, count
		}
	}
	if sets == nil {
		for _, h := range i.hosts {
			visit(h)
		}
		return
	}
	// A host has one value of a label, so the sets have nothing in common.
	for _, set := range sets {
		for h := range set {
			visit(h)
		}
	}
}

// label is one label of a host, in a namespace.
type label struct{ namespace, key, value string }

// index adds a host to the index of labels.
func (i *Inventory) index(h *host) {
	for key, value := range h.labels {
		at := label{h.key.Namespace, key, value}
		if i.labelled[at] == nil {
			i.labelled[at] = map[*host]struct{}{}
		}
		i.labelled[at][h] = struct{}{}
	}
}

// unindex takes a host out of the index of labels.
func (i *Inventory) unindex(h *host) {
	for key, value := range h.labels {
		at := label{h.key.Namespace, key, value}
		if delete(i.labelled[at], h); len(i.labelled[at]) == 0 {
			delete(i.labelled, at)
		}
	}
}

// State is what a host of a type is to the pool. Each host is in exactly one, so that their counts add up.
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

// StateCount is how many hosts of a type are in a state for a reason.
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

// state of the host to a type.
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
	case h.eligibility.Reason == "":
		return StateAvailable, ""
	}
	return StateUnavailable, h.eligibility.Reason
}
