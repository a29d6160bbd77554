// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
)

const metricsNamespace = "karpenter_metal3"

// The metrics describe the last time that core listed the pending pods.
var (
	waitingGangs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Name: "gangs_waiting", Help: "Gangs that get no server yet, by the reason of the event on their pods.",
	}, []string{"reason"})
	plannedGangs = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Name: "gangs_planned", Help: "Gangs with pending pods that Karpenter plans servers for.",
	})
	waitDurations = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: metricsNamespace, Name: "gang_wait_duration_seconds",
		Help:    "Seconds from the creation of the first pod of a gang until Karpenter plans all servers that the gang needs.",
		Buckets: []float64{1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400},
	})
)

func init() { metrics.Registry.MustRegister(waitingGangs, plannedGangs, waitDurations) }

// measure counts gangs, and observes the wait of each gang once.
func (p *Placer) measure(gangs []*gang) {
	waiting, planned := map[string]int{explain.ReasonGangIncomplete: 0, explain.ReasonInsufficientDomainCapacity: 0}, 0
	for _, gang := range gangs {
		if gang.isWaiting() {
			waiting[gang.waits.Reason]++
			continue
		}
		planned++
		if whole := gang.minCount > 0 || gang.short == ""; whole && !gang.measured && !gang.started() {
			waitDurations.Observe(p.Clock.Since(gang.pods[0].CreationTimestamp.Time).Seconds())
			gang.measured = true
		}
	}
	for reason, count := range waiting {
		waitingGangs.WithLabelValues(reason).Set(float64(count))
	}
	plannedGangs.Set(float64(planned))
}
