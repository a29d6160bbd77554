// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestCompareNames(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		want   []string
	}{
		"Numbers":  {"they are counted", []string{"rack-1", "rack-2", "rack-10", "rack-100"}},
		"Zeros":    {"they change no number, and two names are never the same", []string{"r001", "r1", "r002", "r10"}},
		"Parts":    {"the first number that differs decides", []string{"a2-9", "a2-10", "a10-1"}},
		"Words":    {"where there is no number, as bytes", []string{"", "rack", "rack-1", "rack-b", "row"}},
		"LongRuns": {"a number may be longer than a word of the machine", []string{"n99999999999999999998", "n99999999999999999999"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := slices.Clone(tc.want)
			slices.Reverse(got)
			slices.SortFunc(got, CompareNames)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestPositions: the servers of a rack are as one sees them in front of it, racks are counted, and what has no unit is below.
func TestPositions(t *testing.T) {
	server := func(rack, unit, name string) Server {
		return Server{Metadata: Metadata{Name: name, Labels: map[string]string{v1alpha1.RackUnitLabelKey: unit}}, Rack: rack, Unit: unit}
	}
	want := []Server{server("rack-2", "10", "c"), server("rack-2", "9", "b"), server("rack-2", "", "a-2"), server("rack-2", "", "a-10"),
		server("rack-10", "1", "d")}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, CompareServers)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Server{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
