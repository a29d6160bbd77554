// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
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
		metrics := startProvider(b, fleet)

		pass(b, quiet)
		before := metrics()
		pass(b, quiet)
		after := metrics()
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

// startProvider starts bin/provider for the tenant of a management cluster, in which the tenant is, too. It returns its metrics once
// all of it runs.
func startProvider(b *testing.B, fleet *management.Cluster) func() management.Metrics {
	b.Helper()
	fleet.Grant(b, management.TenantNamespace, "provider-management.yaml", "provider-tenant.yaml", "provider-dra-management.yaml",
		"provider-dra-tenant.yaml")
	address, err := cluster.FreeAddress()
	if err != nil {
		b.Fatal(err)
	}
	kubeconfig := fleet.Kubeconfig(b, "karpenter-metal3-provider")
	command := exec.Command(filepath.Join("..", "..", "bin", "provider"), "--namespace", management.TenantNamespace,
		"--tenant-cluster", "tenant", "--tenant-kubeconfig", kubeconfig, "--tenant-allow-unsafe-kubeconfig",
		"--management-kubeconfig", kubeconfig, "--metrics-bind-address", address)
	output := &strings.Builder{}
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(command.Process.Signal(os.Interrupt), command.Wait()); err != nil || b.Failed() {
			b.Logf("the provider ended with %v, and said:\n%s", err, output)
		}
	})
	var last management.Metrics
	read := func(ctx context.Context) (err error) {
		last, err = management.ReadMetrics(ctx, "http://"+address+"/metrics")
		return err
	}
	poll.Eventually(b, "the provider runs", func(ctx context.Context) error {
		if err := read(ctx); err != nil {
			return err
		}
		if _, runs := last[workersMetric+`{controller="nodeclaim.lifecycle"}`]; !runs {
			return errors.New("it is not the leader yet")
		}
		return nil
	})
	return func() management.Metrics {
		b.Helper()
		if err := read(b.Context()); err != nil {
			b.Fatal(err)
		}
		return last
	}
}
