// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"slices"
)

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
	// StateQuarantined: a Machine on the host was given up, and nobody has said yet that the host is well.
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

// States counts the hosts of each type by state and reason, sorted. Every type has a count for available, claimed, error and
// quarantined, though it be zero. It looks at each host once, so it is for somebody who asks now and then.
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
