// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// Values of the label result.
const (
	resultAdmitted = "admitted"
	resultWarned   = "warned"
	resultDenied   = "denied"
	resultFailed   = "failed"
	// noRule is the rule of a request that is admitted or has failed.
	noRule rules.Rule = ""
)

var (
	requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "karpenter_metal3", Subsystem: "webhook", Name: "results_total",
		Help: "Admission requests by kind, rule and result: denied and warned count once for each rule with an error or a warning; admitted " +
			"and failed have no rule.",
	}, []string{"kind", "rule", "result"})
	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "karpenter_metal3", Subsystem: "webhook", Name: "duration_seconds",
		Help:    "Duration of admission requests by kind and operation, in seconds.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"kind", "operation"})
)

func init() { metrics.Registry.MustRegister(requests, durations) }

func count(kind string, result rules.Result) {
	if result.Allowed() {
		requests.WithLabelValues(kind, string(noRule), resultAdmitted).Inc()
	}
	for _, rule := range result.Denied {
		requests.WithLabelValues(kind, string(rule), resultDenied).Inc()
	}
	for _, rule := range result.Warned {
		requests.WithLabelValues(kind, string(rule), resultWarned).Inc()
	}
}

func countFailure(kind string) { requests.WithLabelValues(kind, string(noRule), resultFailed).Inc() }

func measure(kind, operation string, took time.Duration) {
	durations.WithLabelValues(kind, operation).Observe(took.Seconds())
}
