// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"testing"
	"time"
)

// TestMain makes the benchmarks small if SMALL_BENCHMARKS is set: "make test-system" runs each of them once, to see that it still
// works and that no count has grown. The times that they report then say nothing.
func TestMain(m *testing.M) {
	if os.Getenv("SMALL_BENCHMARKS") != "" {
		claims, claimHosts, quiet = 50, []int{100}, time.Second
		admissions, admissionRate, fleetSize = 200, 100, 200
		statusInterval = 5 * time.Second
		draTenants, draClasses, draClaims, draIdle = 2, 5, []int{20}, time.Second
		greedyMachines, servedMachines = 300, 5
		storedServers, rewriting = 100, 5*time.Second
		burstPods, burstServers, afterwards = 10, 4, time.Second
	}
	os.Exit(m.Run())
}

// reportAtMost reports a count, and fails above the most that it may be. The reason says what it is made of. Times are reported and never
// held: they depend on the machine. A count that depends on how much a machine does at a time has the most that it is on any machine.
func reportAtMost(b *testing.B, count float64, unit string, most float64, reason string) {
	b.Helper()
	b.ReportMetric(count, unit)
	if count > most {
		b.Errorf("%.4g %s, want at most %.4g: %s", count, unit, most, reason)
	}
}
