// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	fleetmetrics "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/metrics"
)

// EventReason is the reason of an event on a Machine. Where a condition says the same, it has the same reason.
type EventReason string

// Reasons of events beside those that come with a condition (v1alpha1.Reason...).
const (
	// EventReleased: the server is available again, or the Machine had none.
	EventReleased EventReason = "Released"
	// EventRebootRefused: the value of the request to reboot is not valid.
	EventRebootRefused EventReason = "RebootRefused"
	// EventQuarantined: a Machine was given up, and its server is quarantined. On the BareMetalHost.
	EventQuarantined EventReason = "Quarantined"
	// EventTaken: the chosen server was taken before it was claimed; another is chosen.
	EventTaken EventReason = "ServerTaken"
	// EventPoolsOverlap: another pool contains addresses of the Machine's pool.
	EventPoolsOverlap EventReason = "AddressPoolsOverlap"
)

// warnings are the reasons that may need action.
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

// quiet are the reasons without an event: every Machine passes through them, and an event costs the API server as much as
// a write of the Machine. The claim has an event of its own.
var quiet = map[string]bool{
	v1alpha1.ReasonClaiming:                true,
	v1alpha1.ReasonClaimed:                 true,
	v1alpha1.ReasonWaitingForBootstrapData: true,
}

const (
	// conflictDelay is the delay after a conflict: long enough for the watch event of the other write to arrive.
	conflictDelay = 50 * time.Millisecond
	// resync is how often a Machine is reconciled without an event, in case one was missed.
	resync = 10 * time.Minute
	// maxSteps limits the states of one reconcile, so that a Machine that keeps losing races for servers does not block a
	// worker.
	maxSteps = 16
	// workers is the number of Machines that are reconciled at a time.
	workers = 10
)

type metrics struct {
	claimLatency prometheus.Histogram
}

func newMetrics() *metrics { return &metrics{claimLatency: fleetmetrics.NewClaimDuration()} }
