// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flaky has a test that fails the third time, for TestDeflake.
package flaky

import (
	"os"
	"path/filepath"
	"testing"
)

func TestThirdTime(t *testing.T) {
	runs, err := os.MkdirTemp(os.Getenv("FLAKY_RUNS"), "")
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(filepath.Dir(runs), "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 3 {
		t.Error("it is the third time")
	}
}
