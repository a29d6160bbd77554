// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package callers has an API server say who may read the metrics of a program. What it depends on, grpc among it, would be 2 MB of each
// program that does not ask.
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
	// reviewsPerSecond of all callers together, and reviewBurst at once: each token that is tried is a request, and every client may try.
	reviewsPerSecond, reviewBurst = 5, 10
	// scrapesPerSecond of one address, and scrapeBurst at once, so that one that tries tokens leaves reviews to Prometheus.
	scrapesPerSecond, scrapeBurst = 0.5, 5
	// knownAddresses bounds the memory for addresses.
	knownAddresses = 4096
)

// Review has the API server say who a client is and whether it may get /metrics.
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

// bounded answers each address at a rate. Nobody is asked about a request beyond that.
func bounded(handler http.Handler) http.Handler {
	addresses := lru.New(knownAddresses)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var source netip.Prefix // of IPv6 the network: a pod may have all of its addresses
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
