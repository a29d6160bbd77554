// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package system

import (
	"iter"
	"os"
	"strconv"
	"testing"
)

// Histories are the seeds of a test that plays random histories: so many, or those from SEED to SEED+HISTORIES.
func Histories(t testing.TB, count uint64) iter.Seq[uint64] {
	t.Helper()
	first := uint64(0)
	for name, value := range map[string]*uint64{"SEED": &first, "HISTORIES": &count} {
		if text := os.Getenv(name); text != "" {
			parsed, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s, %v", name, err)
			}
			*value = parsed
		}
	}
	return func(yield func(uint64) bool) {
		for seed := first; seed < first+count && yield(seed); seed++ {
		}
	}
}
