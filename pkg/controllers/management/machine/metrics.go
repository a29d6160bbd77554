// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/prometheus/client_golang/prometheus"

	fleetmetrics "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/metrics"
)

type metrics struct {
	claimLatency prometheus.Histogram
}

func newMetrics() *metrics { return &metrics{claimLatency: fleetmetrics.NewClaimDuration()} }
