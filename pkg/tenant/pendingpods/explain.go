// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package pendingpods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Reasons of the events on pods.
const (
	// ReasonNoServerAvailable: a NodeType fits, but none of its servers is free.
	ReasonNoServerAvailable = "NoServerAvailable"
	// ReasonNoRoomTogether: there are free servers, but not enough in one topology domain for all pods that must be
	// together.
	ReasonNoRoomTogether = "NoRoomTogether"
	// ReasonQuotaReached: the tenant has all servers that it may have.
	ReasonQuotaReached = "QuotaReached"
	// ReasonNoNodeTypeFits: no NodeType could ever serve the pod as it is.
	ReasonNoNodeTypeFits = "NoNodeTypeFits"
)

// maxMessage is the greatest length of an event's message, in bytes.
const maxMessage = 1024

// Explanation says why no server can be had for a pod.
type Explanation struct {
	// Reason is ReasonNoServerAvailable or ReasonNoNodeTypeFits.
	Reason string
	// Message has at most 1024 bytes, one clause per NodeType, the closest first.
	Message string
}

// obstacle is what keeps a NodeType from serving a pod, from the nearest to the farthest.
type obstacle int

const (
	nothing obstacle = iota
	noneFree
	labelsDiffer
	tooSmall
	lacksResource
	forAcceleratorsOnly
	notAllowed
)

// finding is what one NodeType has to say to a pod.
type finding struct {
	nodeType string
	obstacle obstacle
	clause   string
}

// Explain returns why none of the NodeTypes can serve the pod now. It reports false if one of them can: the tenant may
// have it, it fits, and it has a free server. Allowed tells which types the tenant may have. The types are not changed.
func Explain(pod *corev1.Pod, types []v1alpha1.NodeType, allowed func(nodeType, provider string) bool) (Explanation, bool) {
	if len(types) == 0 {
		return Explanation{Reason: ReasonNoNodeTypeFits, Message: "no node type fits: there are no NodeTypes"}, true
	}
	wish := wishOf(pod, types)
	findings := make([]finding, 0, len(types))
	for i := range types {
		obstacle, clause := wish.check(&types[i], allowed)
		if obstacle == nothing {
			return Explanation{}, false
		}
		findings = append(findings, finding{nodeType: types[i].Name, obstacle: obstacle, clause: clause})
	}
	slices.SortFunc(findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.obstacle, b.obstacle), cmp.Compare(a.nodeType, b.nodeType))
	})
	if findings[0].obstacle == noneFree {
		return Explanation{Reason: ReasonNoServerAvailable, Message: message("no server available: ", findings)}, true
	}
	return Explanation{Reason: ReasonNoNodeTypeFits, Message: message("no node type fits: ", findings)}, true
}

// message joins as many findings as an event can hold.
func message(prefix string, findings []finding) string {
	// What the last clause may need: "; and 1000000 more types".
	const reserve = 32
	var text strings.Builder
	text.WriteString(prefix)
	for i, finding := range findings {
		clause := finding.nodeType + ": " + finding.clause
		if i > 0 {
			clause = "; " + clause
		}
		if text.Len()+len(clause) > maxMessage-reserve {
			fmt.Fprintf(&text, "; and %d more types", len(findings)-i)
			break
		}
		text.WriteString(clause)
	}
	return text.String()
}
