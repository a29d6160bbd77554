// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics knows what the manager tells Prometheus of hosts and Machines: the names, the labels, and what they
// are made from. Gauges are counted when they are asked for, from the inventory and the cache, so nothing has to be kept
// up to date and a series goes with what it counts. Counters and durations come of a watch on Machines.
//
// Labels are types, states, phases and reasons; never a host or a Machine. docs/metrics.md lists every metric.
package metrics

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Fleet is the metrics of hosts and Machines of one manager.
type Fleet struct {
	inventory Inventory
	clock     clock.PassiveClock
	registry  prometheus.Registerer
}

// NewFleet returns the metrics of the hosts in the inventory, and of all Machines.
func NewFleet(inventory Inventory, clock clock.PassiveClock) *Fleet {
	return &Fleet{inventory: inventory, clock: clock, registry: ctrlmetrics.Registry}
}

// Register adds the metrics to those that the manager serves.
func (f *Fleet) Register(_ context.Context, mgr manager.Manager) error {
	watcher := newWatcher(mgr.GetCache(), f.clock)
	if err := mgr.Add(watcher); err != nil {
		return fmt.Errorf("adding the watch for metrics, %w", err)
	}
	collectors := append(watcher.collectors(), hostCounts{inventory: f.inventory}, machineCounts{machines: mgr.GetClient(), clock: f.clock})
	for _, collector := range collectors {
		if err := f.registry.Register(collector); err != nil {
			return fmt.Errorf("registering the metrics of the fleet, %w", err)
		}
	}
	return nil
}

// Inventory is what knows the hosts.
type Inventory interface {
	// Synced tells whether all hosts and types have been taken in.
	Synced() bool
	// States counts the hosts of each type by state and reason.
	States() []inventory.StateCount
}

var hostsDescription = describe("hosts",
	"BareMetalHosts that match a NodeType, by state: available, claimed, error, quarantined, unavailable. A host may match several types.",
	NodeTypeLabel, StateLabel, ReasonLabel)

// hostCounts counts the hosts when it is asked to.
type hostCounts struct{ inventory Inventory }

// Describe implements prometheus.Collector.
func (h hostCounts) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- hostsDescription }

// Collect implements prometheus.Collector. An inventory that is still being filled would look like servers that are gone.
func (h hostCounts) Collect(metrics chan<- prometheus.Metric) {
	if !h.inventory.Synced() {
		return
	}
	for _, count := range h.inventory.States() {
		metrics <- prometheus.MustNewConstMetric(hostsDescription, prometheus.GaugeValue, float64(count.Hosts),
			count.NodeType, string(count.State), string(count.Reason))
	}
}

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
