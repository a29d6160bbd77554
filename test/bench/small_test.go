// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"testing"
	"time"
)

// TestMain makes the benchmarks small if SMALL_BENCHMARKS is set: "make test-system" runs each of them once, to see that it still
// works. What they report then says nothing.
func TestMain(m *testing.M) {
	if os.Getenv("SMALL_BENCHMARKS") != "" {
		claims, claimHosts, quiet = 50, []int{100}, time.Second
		admissions, admissionRate, fleetSize = 200, 100, 200
		statusInterval = 5 * time.Second
		draTenants, draClasses, draClaims, draIdle = 2, 5, []int{20}, time.Second
		greedyMachines, servedMachines = 300, 5
		burstPods, burstServers, afterwards = 10, 4, time.Second
	}
	os.Exit(m.Run())
}
