// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// workersMetric is the number of workers of each controller. Controllers have it once they run, which is after the election of a leader.
const workersMetric = "controller_runtime_max_concurrent_reconciles"

// BenchmarkIdleProvider has a provider watch a tenant without pods, and the types of 10,000 servers. It reports:
//
//	workers       of its controllers, which wait
//	goroutines    these, and others
//	requests/min  while nothing happens
//	core-%        CPU time meanwhile, in percent of one core
//	MiB           resident memory, its program included, which providers on one node share
//	go-MiB        what of it is Go's, and of this process alone
func BenchmarkIdleProvider(b *testing.B) {
	for b.Loop() {
		fleet := management.New(b, nil)
		fleet.CreateHosts(b, fleetSize)
		fleet.StartManager(b)
		awaitTypes(b, fleet, fleetSize)
		provider := startProvider(b, fleet)

		pass(b, quiet)
		before := provider.Metrics(b)
		pass(b, quiet)
		after := provider.Metrics(b)
		workers := 0.0
		for name, count := range after {
			if strings.HasPrefix(name, workersMetric+"{") {
				workers += count
			}
		}
		reportAtMost(b, workers, "workers", 600, "pkg/karpenter/workers limits those of core")
		reportAtMost(b, after["go_goroutines"], "goroutines", 1600, "the workers, and 7 of each controller beside them")
		b.ReportMetric((after.Requests()-before.Requests())/quiet.Minutes(), "requests/min")
		b.ReportMetric(100*(after.CPUSeconds()-before.CPUSeconds())/quiet.Seconds(), "core-%")
		b.ReportMetric(after.Resident()/(1<<20), "MiB")
		b.ReportMetric((after["go_memstats_sys_bytes"]-after["go_memstats_heap_released_bytes"])/(1<<20), "go-MiB")
	}
}

// startProvider starts the provider, and waits until all of it runs.
func startProvider(b *testing.B, fleet *management.Cluster) *management.Manager {
	b.Helper()
	provider := fleet.StartProvider(b)
	poll.Eventually(b, "the provider runs", func(context.Context) error {
		if _, runs := provider.Metrics(b)[workersMetric+`{controller="nodeclaim.lifecycle"}`]; !runs {
			return errors.New("it is not the leader yet")
		}
		return nil
	})
	return provider
}
