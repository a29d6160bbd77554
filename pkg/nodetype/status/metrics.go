// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	nodeTypeLabel = "nodetype"
	stateLabel    = "state"
)

// hostsGauge counts as NodeType.status.capacity does.
var hostsGauge = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "karpenter_metal3_hosts",
	Help: "BareMetalHosts that match a NodeType, by state: total, claimed, available, error. A host may match several types.",
}, []string{nodeTypeLabel, stateLabel})

func init() { metrics.Registry.MustRegister(hostsGauge) }

func count(nodeType string, capacity v1alpha1.Capacity) {
	for state, value := range map[string]int32{
		"total": capacity.Total, "claimed": capacity.Claimed, "available": capacity.Available, "error": capacity.Error,
	} {
		hostsGauge.WithLabelValues(nodeType, state).Set(float64(value))
	}
}

func forget(nodeType string) {
	hostsGauge.DeletePartialMatch(prometheus.Labels{nodeTypeLabel: nodeType})
}
