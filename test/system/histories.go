// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package system

import (
	"iter"
	"os"
	"strconv"
	"testing"
)

// Histories are the seeds of a test that plays random histories: so many, or as many as TEST_HISTORIES says, from TEST_HISTORIES_SEED on.
func Histories(t testing.TB, count uint64) iter.Seq[uint64] {
	t.Helper()
	first := uint64(0)
	for name, value := range map[string]*uint64{"TEST_HISTORIES_SEED": &first, "TEST_HISTORIES": &count} {
		if text := os.Getenv(name); text != "" {
			parsed, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s is %q: it must be a number from 0 on", name, text)
			}
			*value = parsed
		}
	}
	return func(yield func(uint64) bool) {
		for seed := first; seed < first+count && yield(seed); seed++ {
		}
	}
}
