// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

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
