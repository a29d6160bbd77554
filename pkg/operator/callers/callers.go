// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package callers has an API server say who may read the metrics of a program. What it depends on, grpc among it, would be 2 MB of each
// program that does not ask.
package callers

import (
	"net/http"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Review has the API server say who a client is and whether it may get /metrics.
func Review(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 5, 10 // each token that is tried is a request, and every client may try
	return filters.WithAuthenticationAndAuthorization(config, client)
}
