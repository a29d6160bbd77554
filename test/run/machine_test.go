// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestPackages(t *testing.T) {
	cases := map[string]struct {
		reason  string
		machine machine
		want    int
	}{
		"TwoCores":    {reason: "The end-to-end tests wait most of the time.", machine: machine{2, 16 * gibibyte}, want: 3},
		"Many":        {reason: "More cores test more packages at a time.", machine: machine{16, 64 * gibibyte}, want: 17},
		"LittleRoom":  {reason: "Sandboxes that swap are too slow for any test.", machine: machine{16, 16 * gibibyte}, want: 5},
		"Small":       {reason: "A package that waits should not run alone.", machine: machine{1, 4 * gibibyte}, want: 2},
		"NotToldSize": {reason: "Where there is no /proc, two packages are safe.", machine: machine{8, 0}, want: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.machine.packages(); got != tc.want {
				t.Errorf("%s\n%d packages, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

func TestMemTotal(t *testing.T) {
	if got, want := memTotal("MemFree: 1 kB\nMemTotal:       16384 kB\nBuffers: 2 kB\n"), int64(16<<20); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if got := memTotal("MemTotal: much\n"); got != 0 {
		t.Errorf("%d bytes from invalid input", got)
	}
}
