// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

// Verdicts, in metrics.
const (
	verdictAdmitted = "admitted"
	verdictWarned   = "warned"
	verdictDenied   = "denied"
	verdictFailed   = "failed"
	// noRule is the rule of a verdict that no single rule has come to.
	noRule rules.Rule = ""
)

var (
	verdicts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "karpenter_metal3", Subsystem: "webhook", Name: "verdicts_total",
		Help: "Verdicts on requests by kind, rule and verdict: denied and warned count once for each rule that had something to say; admitted and failed have no rule.",
	}, []string{"kind", "rule", "verdict"})
	durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "karpenter_metal3", Subsystem: "webhook", Name: "duration_seconds",
		Help:    "How long it took to come to a verdict, by kind and operation, in seconds.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"kind", "operation"})
)

func init() { metrics.Registry.MustRegister(verdicts, durations) }

func count(kind string, verdict rules.Verdict) {
	if verdict.Allowed() {
		verdicts.WithLabelValues(kind, string(noRule), verdictAdmitted).Inc()
	}
	for _, rule := range verdict.Denied {
		verdicts.WithLabelValues(kind, string(rule), verdictDenied).Inc()
	}
	for _, rule := range verdict.Warned {
		verdicts.WithLabelValues(kind, string(rule), verdictWarned).Inc()
	}
}

func countFailure(kind string) { verdicts.WithLabelValues(kind, string(noRule), verdictFailed).Inc() }

func measure(kind, operation string, took time.Duration) {
	durations.WithLabelValues(kind, operation).Observe(took.Seconds())
}
