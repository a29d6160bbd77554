// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/events"
)

// Reasons of events on NodeClaims and Nodes.
const (
	// reasonWithoutSpare: the node is drained before its replacement is there.
	reasonWithoutSpare = "RolloutWithoutSpare"
	// reasonBlocked: the node is not disrupted, because its pods would not get a server again.
	reasonBlocked = "RolloutBlocked"
)

func drainedFirst(candidate *disruption.Candidate, why string) []events.Event {
	return both(candidate, corev1.EventTypeNormal, reasonWithoutSpare,
		fmt.Sprintf("%s: this node is drained first, and its server comes back installed as it should be", why))
}

func blocked(candidate *disruption.Candidate, why string) []events.Event {
	return both(candidate, corev1.EventTypeWarning, reasonBlocked, "this node has drifted and stays: "+why)
}

func both(candidate *disruption.Candidate, kind, reason, message string) []events.Event {
	var all []events.Event
	for _, object := range []runtime.Object{candidate.NodeClaim, candidate.Node} {
		all = append(all, events.Event{
			InvolvedObject: object, Type: kind, Reason: reason, Message: message,
			DedupeValues: []string{string(candidate.NodeClaim.UID), reason},
		})
	}
	return all
}
