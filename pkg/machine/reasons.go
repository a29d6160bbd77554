// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// EventReason is the reason of an event on a Machine. Where a condition says the same, it has the same reason.
type EventReason string

// Reasons of events beside those that come with a condition (v1alpha1.Reason...).
const (
	// EventReleased: the server is back in the pool, or there was none to give back.
	EventReleased EventReason = "Released"
	// EventRebootRefused: the request to reboot is not one that there is.
	EventRebootRefused EventReason = "RebootRefused"
	// EventQuarantined: a Machine was given up on the server, which is kept out of the pool. On the BareMetalHost.
	EventQuarantined EventReason = "Quarantined"
	// EventTaken: the server that had been chosen was gone before it was claimed; another is chosen.
	EventTaken EventReason = "ServerTaken"
)

// warnings are the reasons that somebody may have to do something about.
var warnings = map[string]bool{
	v1alpha1.ReasonNoCapacity:       true,
	v1alpha1.ReasonNoMatchingType:   true,
	v1alpha1.ReasonNotAllowed:       true,
	v1alpha1.ReasonQuotaExceeded:    true,
	v1alpha1.ReasonTenantDeleting:   true,
	v1alpha1.ReasonInvalidSpec:      true,
	v1alpha1.ReasonHostError:        true,
	v1alpha1.ReasonDeadlineExceeded: true,
	v1alpha1.ReasonHostLost:         true,
	v1alpha1.ReasonHostDeleting:     true,
	v1alpha1.ReasonNoAddress:        true,
}

const (
	// conflictDelay is how long a write that lost a compare-and-swap waits before everything is read anew: long
	// enough for a watch event to arrive.
	conflictDelay = 50 * time.Millisecond
	// resync is how often a Machine is looked at although nothing happened, in case an event was missed.
	resync = 10 * time.Minute
	// maxSteps bounds the states that one run goes through, so that a Machine that keeps losing races for servers
	// lets others have their turn.
	maxSteps = 16
	// workers is the number of Machines that are worked on at a time.
	workers = 10
)
