// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package callers asks an API server who may read the metrics of a program. Its dependencies, such as grpc, would add 2
// MB to each program that does not ask.
package callers

import (
	"net/http"
	"net/netip"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// reviewsPerSecond and reviewBurst limit all callers: each tried token is a request, and every client may try.
	reviewsPerSecond, reviewBurst = 5, 10
	// scrapesPerSecond and scrapeBurst limit one address. If it tries tokens, reviews are left for Prometheus.
	scrapesPerSecond, scrapeBurst = 0.5, 5
	// knownAddresses limits how many addresses are kept in memory.
	knownAddresses = 4096
)

// Review makes a filter that asks the API server who a client is and whether it may get /metrics.
func Review(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = reviewsPerSecond, reviewBurst
	review, err := filters.WithAuthenticationAndAuthorization(config, client)
	if err != nil {
		return nil, err
	}
	return func(logger logr.Logger, metrics http.Handler) (http.Handler, error) {
		reviewed, err := review(logger, metrics)
		return bounded(reviewed), err
	}, nil
}

// bounded limits the rate of each address. It refuses further requests without asking the API server.
func bounded(handler http.Handler) http.Handler {
	addresses := lru.New(knownAddresses)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var source netip.Prefix // for IPv6 the network: a pod may have all of its addresses
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			source, _ = from.Addr().Unmap().Prefix(min(64, from.Addr().Unmap().BitLen()))
		}
		limit, known := addresses.Get(source)
		if !known {
			limit = rate.NewLimiter(scrapesPerSecond, scrapeBurst)
			addresses.Add(source, limit)
		}
		if !limit.(*rate.Limiter).Allow() {
			http.Error(w, "too many requests from this address", http.StatusTooManyRequests)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
