// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"os"
	"path/filepath"
	"strings"
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
			"a step that another watch saw after the next one is not counted twice",
			[]int{0, 3, 1, 4}, map[string]time.Duration{"a": 0, "b": 3 * time.Second, "c": 0, "d": time.Second},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &timeline{}
			for i, seen := range tc.seen {
				l.add(ownerOurs, string(rune('a'+i)), start.Add(time.Duration(seen)*time.Second))
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
			[]inventory.GPU{{Count: 2, Manufacturer: "NVIDIA", Model: "H100"}, {Manufacturer: "NVIDIA", Model: "L4"},
				{Manufacturer: "AMD", Model: "MI300"}},
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

func TestCopyWith(t *testing.T) {
	cases := map[string]struct {
		reason, content, replacement, want, err string
	}{
		"Once": {reason: "the name of an operating system, somewhere in a disk", content: "..image old..", replacement: "new",
			want: "..image new.."},
		"Twice": {reason: "it is not known which one is meant", content: "old, old", replacement: "new", err: "2 times"},
		"Never": {reason: "both images would be the same", content: "image", replacement: "new", err: "0 times"},
		"Longer": {reason: "everything after it would be somewhere else", content: "image old", replacement: "newer",
			err: `"newer" is not as long as "old"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
			writeFile(t, from, []byte(tc.content), 0o600)
			err := copyReplacing(from, to, []byte("old"), []byte(tc.replacement))
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: error is %v, want one with %q", tc.reason, err, tc.err)
			}
			if got, _ := os.ReadFile(to); string(got) != tc.want {
				t.Errorf("%s: the copy is %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
