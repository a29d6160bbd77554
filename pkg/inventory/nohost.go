// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Outcome says why a type gives a request no host.
type Outcome string

// Outcomes, from the best to the worst.
const (
	// NoneFree: the type fits, but no host that meets the requirements can be claimed now.
	NoneFree Outcome = "NoneFree"
	// AtMaxCapacity: the type fits, but as many hosts as maxCapacity allows are claimed as it.
	AtMaxCapacity Outcome = "AtMaxCapacity"
	// NotAllowed: the type fits, but the tenant may not have it.
	NotAllowed = Outcome(matching.NotAllowed)
	// TooSmall: the type does not have enough of a resource.
	TooSmall = Outcome(matching.TooSmall)
	// Accelerated: the type has accelerators, and the request asks for none of them.
	Accelerated = Outcome(matching.Accelerated)
	// RequirementNotMet: the labels of the type, or of all its hosts, do not meet a requirement.
	RequirementNotMet Outcome = "RequirementNotMet"
	// WrongServer: the request is pinned to a server that is not of this type.
	WrongServer Outcome = "WrongServer"
	// ServerTooSmall: the request is pinned to a server that has less than the type says.
	ServerTooSmall Outcome = "ServerTooSmall"
)

// Candidate is a type that was considered for a request, with the reason why it gives no host.
type Candidate struct {
	NodeType string
	Cost     int64
	// Foreign marks a type that the tenant may not have and has not named. Tenants read the error, which only counts
	// these types: their names may belong to other customers.
	Foreign bool
	// Outcome is why the type gives no host.
	Outcome Outcome
	// Mismatch of the type with the request, if the outcome is TooSmall, Accelerated or NotAllowed.
	Mismatch matching.Mismatch
	// Requirement that no host meets, if the outcome is RequirementNotMet.
	Requirement string
	// Counts of the hosts that meet the requirements, if the outcome is NoneFree or AtMaxCapacity.
	Counts Counts
	// TooSmall are the first, by name, of the hosts that have less than the type says.
	TooSmall []SmallServer
	// Closed are the domains of other tenants where matching hosts are free.
	Closed []string
	// MaxCapacity that was reached, if the outcome is AtMaxCapacity.
	MaxCapacity int32
	// Server that the request is pinned to, as namespace/name; empty if it is not pinned.
	Server string
	// Eligibility of the pinned server, if the outcome is NoneFree.
	Eligibility Eligibility
	// Lacks names what the pinned server has less of than the type declares, if the outcome is ServerTooSmall.
	Lacks string
}

// Fits reports whether the type is right for the request, even if none of its servers is available now.
func (c Candidate) Fits() bool {
	return slices.Contains([]Outcome{NoneFree, AtMaxCapacity}, c.Outcome)
}

// String describes the outcome of the candidate, without its name: "2 servers match, 2 claimed, 0 in error".
func (c Candidate) String() string {
	switch c.Outcome {
	case NoneFree:
		if c.Server != "" {
			return "server " + c.Server + " " + c.Eligibility.Message
		}
		counts := c.Counts.String()
		if capacity.OnlyTooSmall(c.Counts.capacity(c.Counts.Available), c.Counts.NotReady) > 0 {
			counts += ": " + Named(c.TooSmall, int(c.Counts.TooSmall))
		}
		if len(c.Closed) > 0 {
			counts += fmt.Sprintf(", and what is free is in %s: each is for another tenant until its last server there is released and clean",
				conditions.List(c.Closed, MaxNamed))
		}
		return counts
	case AtMaxCapacity:
		return fmt.Sprintf("%s, maxCapacity %d is reached", c.Counts, c.MaxCapacity)
	case TooSmall, Accelerated, NotAllowed:
		return c.Mismatch.Describe("Machine")
	case RequirementNotMet:
		return "does not meet " + c.Requirement
	case WrongServer:
		return "server " + c.Server + " is not of this type"
	case ServerTooSmall:
		return "server " + c.Server + " is too small for this type (" + c.Lacks + ")"
	}
	return string(c.Outcome)
}

// NoHostError says why a request gets no host.
type NoHostError struct {
	// Reason is one of the API's condition reasons: NoCapacity, NoMatchingType, NotAllowed or InvalidSpec.
	Reason string
	// Detail is the error of the request itself, if any.
	Detail string
	// ServerName is the server that the request is pinned to, empty if it is not pinned.
	ServerName string
	// Considered are all types that were considered, cheapest first.
	Considered []Candidate
}

// explained is the maximum number of types in a message, to keep it readable.
const explained = 8

// Error lists for each type why there is no host; types that fit come first.
func (e *NoHostError) Error() string {
	if e.Detail != "" {
		return e.Detail
	}
	candidates := slices.Clone(e.Considered)
	if e.ServerName != "" && slices.ContainsFunc(candidates, Candidate.Fits) {
		// The server is of the types that fit, so the others are beside the point.
		candidates = slices.DeleteFunc(candidates, func(c Candidate) bool { return c.Outcome == WrongServer })
	}
	slices.SortStableFunc(candidates, func(a, b Candidate) int { return rank(a) - rank(b) })
	var parts []string
	all := len(candidates)
	candidates = slices.DeleteFunc(candidates, func(c Candidate) bool { return c.Foreign })
	for n, candidate := range candidates {
		if n == explained {
			parts = append(parts, fmt.Sprintf("and %d more types", len(candidates)-n))
			break
		}
		parts = append(parts, candidate.NodeType+": "+candidate.String())
	}
	if foreign := all - len(candidates); foreign > 0 {
		parts = append(parts, matching.Foreign(foreign))
	}
	if len(parts) == 0 {
		parts = []string{"there are no NodeTypes"}
	}
	if e.ServerName != "" {
		return fmt.Sprintf("pinned to server %q, which cannot be had: %s", e.ServerName, strings.Join(parts, "; "))
	}
	return prefixes[e.Reason] + ": " + strings.Join(parts, "; ")
}

var prefixes = map[string]string{
	v1alpha1.ReasonNoCapacity:     "no server available",
	v1alpha1.ReasonNoMatchingType: "no NodeType fits",
	v1alpha1.ReasonNotAllowed:     "this tenant is allowed no NodeType that fits",
	v1alpha1.ReasonInvalidSpec:    "invalid request",
}

func rank(c Candidate) int {
	switch {
	case c.Fits():
		return 0
	case c.Outcome == NotAllowed:
		return 1
	}
	return 2
}

// reasonOf sums candidates up. A fitting type without a free server outweighs a type that is not allowed, and that
// outweighs all types that do not fit.
func reasonOf(candidates []Candidate) string {
	best := 2
	for _, candidate := range candidates {
		best = min(best, rank(candidate))
	}
	return []string{v1alpha1.ReasonNoCapacity, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonNoMatchingType}[best]
}
