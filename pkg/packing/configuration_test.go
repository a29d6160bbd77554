// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

var one = resource.MustParse("1")

func TestValidateNamesWhatIsWrong(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*Settings)
		want   string
	}{
		"Defaults":      {"they must be usable as they are", func(*Settings) {}, ""},
		"NoResources":   {"nothing would be packed", func(s *Settings) { s.Resources = nil }, "there is no resource to pack"},
		"WrongName":     {"kube-scheduler would refuse the file, far from here", func(s *Settings) { s.Resources = []corev1.ResourceName{"nvidia gpu"} }, `"nvidia gpu"`},
		"NoWeight":      {"a preference without weight is none", func(s *Settings) { s.Weight = 0 }, "weight of packing is 0"},
		"TooHeavy":      {"kube-scheduler adds scores up", func(s *Settings) { s.Weight = MaxWeight + 1 }, "weight of packing is 1001"},
		"SchedulerName": {"pods name it", func(s *Settings) { s.SchedulerName = "Packing!" }, `"Packing!"`},
	} {
		t.Run(name, func(t *testing.T) {
			settings := DefaultSettings()
			tc.change(&settings)
			err := settings.Validate()
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestWithAddsAccelerators(t *testing.T) {
	got := With([]corev1.ResourceName{"nvidia.com/gpu"},
		corev1.ResourceList{"cpu": one, "amd.com/gpu": one, "example.com/none": resource.Quantity{}},
		corev1.ResourceList{"nvidia.com/gpu": one, "hugepages-2Mi": one})
	if diff := cmp.Diff([]corev1.ResourceName{"amd.com/gpu", "nvidia.com/gpu"}, got); diff != "" {
		t.Errorf("what every server has is not packed, and each name is there once (-want +got):\n%s", diff)
	}
}
