// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const metricsNamespace = "karpenter_metal3"

type metrics struct {
	claimLatency prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{claimLatency: prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: metricsNamespace,
		Name:      "machine_claim_duration_seconds",
		Help:      "Seconds from the creation of a Machine to the claim on its server, including the wait for a free one.",
		// From 10 ms, which is a few writes, to a day and a half of waiting for a server.
		Buckets: prometheus.ExponentialBuckets(0.01, 4, 13),
	})}
}

// phases counts the Machines when it is asked to, from the cache: nothing has to be kept up to date.
type phases struct {
	client      client.Reader
	description *prometheus.Desc
}

func newPhases(reader client.Reader) *phases {
	return &phases{client: reader, description: prometheus.NewDesc(
		metricsNamespace+"_machines", "Number of Machines by phase.", []string{"phase"}, nil)}
}

// Describe implements prometheus.Collector.
func (p *phases) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- p.description }

// Collect implements prometheus.Collector.
func (p *phases) Collect(metrics chan<- prometheus.Metric) {
	ctx := context.Background()
	machines := &v1alpha1.MachineList{}
	if err := p.client.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Counting Machines for metrics")
		return
	}
	counts := map[v1alpha1.MachinePhase]int{
		v1alpha1.MachinePending: 0, v1alpha1.MachineClaiming: 0, v1alpha1.MachineClaimed: 0, v1alpha1.MachineProvisioning: 0,
		v1alpha1.MachineProvisioned: 0, v1alpha1.MachineJoined: 0, v1alpha1.MachineFailed: 0, v1alpha1.MachineReleasing: 0,
	}
	for i := range machines.Items {
		if phase := machines.Items[i].Status.Phase; phase != "" {
			counts[phase]++
		} else {
			counts[v1alpha1.MachinePending]++
		}
	}
	for phase, count := range counts {
		metrics <- prometheus.MustNewConstMetric(p.description, prometheus.GaugeValue, float64(count), string(phase))
	}
}
