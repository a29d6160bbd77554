// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Namespace is what the names of all metrics of this project begin with.
const Namespace = "karpenter_metal3"

// Labels.
const (
	// NodeTypeLabel is the name of a NodeType; empty for a Machine that has no type yet.
	NodeTypeLabel = "nodetype"
	// StateLabel is what a host is to the pool.
	StateLabel = "state"
	// ReasonLabel is a reason of a condition, or why a host cannot be claimed.
	ReasonLabel = "reason"
	// PhaseLabel is the phase of a Machine.
	PhaseLabel = "phase"
	// StepLabel is a part of the way from a claim to a node, or back.
	StepLabel = "step"
)

// Steps of the way, in its order.
const (
	// StepInstall: from the claim to the image that Metal3 has installed and booted.
	StepInstall = "install"
	// StepJoin: from the booted image to the Node that has registered.
	StepJoin = "join"
	// StepRelease: from the deletion of the Machine to the server that is cleaned and back in the pool.
	StepRelease = "release"
)

// durations are the buckets of what takes servers seconds at best and hours at worst.
var durations = []float64{1, 5, 15, 30, 60, 120, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 14400}

// NewClaimDuration returns the histogram of the wait for a claim, which the Machine controller observes as it writes it.
func NewClaimDuration() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: Namespace,
		Name:      "machine_claim_duration_seconds",
		Help:      "Seconds from the creation of a Machine to the claim on its server, including the wait for a free one.",
		// From 10 ms, which is a few writes, to a day and a half of waiting for a server.
		Buckets: prometheus.ExponentialBuckets(0.01, 4, 13),
	})
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(Namespace+"_"+name, help, labels, nil)
}
