// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"
)

// ForTest makes a Supervisor for a test, which fails when a process exits. The Supervisor is closed at the end of the test.
func ForTest(t testing.TB, dir string) *Supervisor {
	t.Helper()
	s, err := NewSupervisor(Options{Dir: dir, OnExit: func(exit Exit) { t.Error(exit) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
