// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

func TestTimeline(t *testing.T) {
	start := time.Unix(0, 0)
	cases := map[string]struct {
		reason string
		// seen is when each step was seen, in seconds.
		seen []int
		want map[string]time.Duration
	}{
		"InOrder": {
			"a step takes the time since the one before",
			[]int{0, 1, 3}, map[string]time.Duration{"a": 0, "b": time.Second, "c": 2 * time.Second},
		},
		"SeenLate": {
			"a step that was seen after the next one, by another watch, leaves no time to that one, and is not counted twice",
			[]int{0, 3, 1, 4}, map[string]time.Duration{"a": 0, "b": 3 * time.Second, "c": 0, "d": time.Second},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &timeline{}
			for i, seen := range tc.seen {
				l.add(byUs, string(rune('a'+i)), start.Add(time.Duration(seen)*time.Second))
			}
			if diff := cmp.Diff(tc.want, l.took()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAccelerators(t *testing.T) {
	cases := map[string]struct {
		reason string
		gpus   []inventory.GPU
		want   map[string][]string
	}{
		"None": {"a server without accelerators advertises nothing", nil, map[string][]string{}},
		"Kinds": {
			"two kinds of one manufacturer are one resource, and no two devices have the same ID; no count means one",
			[]inventory.GPU{{Count: 2, Manufacturer: "NVIDIA", Model: "H100"}, {Manufacturer: "NVIDIA", Model: "L4"}, {Manufacturer: "AMD", Model: "MI300"}},
			map[string][]string{"nvidia.com/gpu": {"GPU-s1-H100-0", "GPU-s1-H100-1", "GPU-s1-L4-2"}, "amd.com/gpu": {"GPU-s1-MI300-0"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := accelerators(inventory.Hardware{SerialNumber: "s1", GPUs: tc.gpus})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
