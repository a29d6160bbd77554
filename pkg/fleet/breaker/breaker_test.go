// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package breaker

import (
	"testing"
	"time"
)

func TestLimit(t *testing.T) {
	for all, want := range map[int]int{0: 3, 1: 3, 15: 3, 19: 3, 20: 4, 40: 8, 1000: 200} {
		if got := Limit(all); got != want {
			t.Errorf("of %d Machines %d may go, want %d", all, got, want)
		}
	}
}

func TestRecent(t *testing.T) {
	start := time.Unix(1e9, 0)
	for name, tc := range map[string]struct {
		reason string
		steps  []time.Duration
		want   int
	}{
		"Now":         {"it has just gone", []time.Duration{0}, 1},
		"JustBefore":  {"the window is not over", []time.Duration{Window - time.Nanosecond}, 1},
		"Over":        {"the window is over", []time.Duration{Window}, 0},
		"Back":        {"the clock was ahead by hours: it counts", []time.Duration{-5 * time.Hour}, 1},
		"BackAndOver": {"but not for hours", []time.Duration{-5 * time.Hour, -5*time.Hour + Window}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			recent, got := Recent{"a": start}, 0
			for _, step := range tc.steps {
				got = recent.Count(start.Add(step))
			}
			if got != tc.want {
				t.Errorf("%d are left, want %d: %s", got, tc.want, tc.reason)
			}
		})
	}
}
