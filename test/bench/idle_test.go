// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
)

// rewrites is how often Metal3 writes the status of each server, once in statusInterval.
const rewrites = 2

var statusInterval = time.Minute

// BenchmarkIdleFleet has the manager watch 10,000 inspected servers without consumers, while Metal3 does to them what
// it does to a fleet at rest: it writes the status of each once a minute, and nothing in it changes but the time. It
// reports:
//
//	updates/s   statuses that were written per second; 167 is one a minute for each server, and an API server with two cores
//	            takes fewer
//	ms/update   CPU time of the manager's process for each of them, whatever it does beside included
//	core-%      that at 167 updates/s, in percent of one core
//	KiB/host    a server as the API server sends it
//	MiB         resident memory of the manager, its program included
//	heap-MiB    what of it is in use, garbage included
//	writes/min  writes of the manager per minute
func BenchmarkIdleFleet(b *testing.B) {
	for b.Loop() {
		cluster := management.New(b, nil)
		cluster.CreateInspectedHosts(b, fleetSize)
		manager := cluster.StartManager(b)
		awaitTypes(b, cluster, fleetSize)
		settle(b, manager)

		before, begin := manager.Metrics(b), time.Now()
		updates := rewriteStatuses(b, cluster, cluster.Hosts(b))
		elapsed, after := time.Since(begin), manager.Metrics(b)
		perUpdate := (after.CPUSeconds() - before.CPUSeconds()) / float64(updates)
		b.ReportMetric(float64(updates)/elapsed.Seconds(), "updates/s")
		b.ReportMetric(1000*perUpdate, "ms/update")
		b.ReportMetric(100*perUpdate*float64(fleetSize)/statusInterval.Seconds(), "core-%")
		b.ReportMetric(hostSize(b, cluster)/(1<<10), "KiB/host")
		b.ReportMetric(after.Resident()/(1<<20), "MiB")
		b.ReportMetric(after.HeapInUse()/(1<<20), "heap-MiB")
		reportAtMost(b, (after.Writes()-before.Writes())/elapsed.Minutes(), "writes/min", 0, "what Metal3 writes of a server that stays as it is")
	}
}

// hostSize is how many bytes the first host has.
func hostSize(b *testing.B, cluster *management.Cluster) float64 {
	b.Helper()
	text, err := json.Marshal(cluster.Hosts(b)[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(len(text))
}

// rewriteStatuses writes the status of every host once in each interval, and returns how many writes that were.
func rewriteStatuses(b *testing.B, cluster *management.Cluster, hosts []bmov1alpha1.BareMetalHost) int {
	b.Helper()
	total := len(hosts) * rewrites
	limit := rate.NewLimiter(rate.Every(statusInterval/time.Duration(len(hosts))), 1)
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(workers)
	for n := range total {
		if err := limit.Wait(ctx); err != nil {
			break // the group has the reason
		}
		group.Go(func() error { return cluster.Touch(ctx, &hosts[n%len(hosts)], n) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return total
}
