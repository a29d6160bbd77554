// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package system marks the tests that `make test` leaves to `make test-system`, and knows which random histories a test plays.
package system

import "testing"

// Skipped is the reason of skipped tests that belong to `make test-system`. test/run counts them by it.
const Skipped = "it is one of the tests of make test-system"

// Only skips the test under `go test -short`, which is how `make test` runs all packages. It is the first statement of a test
// function: `make test-system` runs the functions that begin with it and no others, and would not see it anywhere else.
func Only(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip(Skipped)
	}
}
