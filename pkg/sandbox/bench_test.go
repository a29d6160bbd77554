// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/sandbox/fleet"
)

// BenchmarkUp prints how long a sandbox with 20 servers takes to come up, and how much memory it has resident then.
func BenchmarkUp(b *testing.B) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		b.Fatal(err)
	}
	binaries := controlplane.Binaries{dir, os.Getenv("KUBEBUILDER_ASSETS")}
	probe := Config{Binaries: binaries}
	if err := probe.checkBinaries(); err != nil {
		b.Skip(err)
	}
	var servers []fleet.Server
	for i := range 20 {
		server := oneServer()[0]
		server.Name = fmt.Sprintf("server-%02d", i)
		servers = append(servers, server)
	}
	var up time.Duration
	var memory int64
	for range b.N {
		dir := b.TempDir()
		start := time.Now()
		s, err := Up(b.Context(), Config{Dir: dir, Binaries: binaries, Fleet: servers})
		if err != nil {
			b.Fatal(err)
		}
		up += time.Since(start)
		report, err := Status(dir)
		if err != nil {
			b.Fatal(err)
		}
		memory += report.Memory()
		s.Close()
	}
	b.ReportMetric(0, "ns/op") // the time with the shutdown is not of interest
	b.ReportMetric(up.Seconds()/float64(b.N), "s-to-up")
	b.ReportMetric(float64(memory>>20)/float64(b.N), "MiB-resident")
}
