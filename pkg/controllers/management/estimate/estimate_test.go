// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func second(n int64) metav1.Time { return metav1.NewTime(time.Unix(n, 0).UTC()) }

func TestNext(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		before  *v1alpha1.ProvisioningEstimate
		samples []sample
		want    *v1alpha1.ProvisioningEstimate
	}{
		"Nothing": {reason: "an estimate out of nothing would be a lie"},
		"First": {
			reason:  "one is better than none",
			samples: []sample{{machine: "a", took: 18 * time.Minute, joined: second(100)}},
			want:    &v1alpha1.ProvisioningEstimate{TypicalSeconds: 1080, Samples: 1, CountedUntil: second(100)},
		},
		"Average": {
			reason: "the first ones weigh the same",
			samples: []sample{{machine: "a", took: 10 * time.Minute, joined: second(100)},
				{machine: "b", took: 20 * time.Minute, joined: second(200)}},
			want: &v1alpha1.ProvisioningEstimate{TypicalSeconds: 900, Samples: 2, CountedUntil: second(200)},
		},
		"LatestCountMost": {
			reason:  "firmware changes, and the estimate follows",
			before:  &v1alpha1.ProvisioningEstimate{TypicalSeconds: 800, Samples: 100, CountedUntil: second(100)},
			samples: []sample{{machine: "a", took: 1600 * time.Second, joined: second(200)}},
			want:    &v1alpha1.ProvisioningEstimate{TypicalSeconds: 900, Samples: 101, CountedUntil: second(200)},
		},
		"CountedOnce": {
			reason:  "after a crash all Machines that have joined are seen again",
			before:  &v1alpha1.ProvisioningEstimate{TypicalSeconds: 800, Samples: 2, CountedUntil: second(200)},
			samples: []sample{{machine: "b", took: time.Second, joined: second(200)}, {machine: "a", took: time.Second, joined: second(100)}},
			want:    &v1alpha1.ProvisioningEstimate{TypicalSeconds: 800, Samples: 2, CountedUntil: second(200)},
		},
		"SameSecond": {
			reason: "those that join together are counted together, whatever order they come in",
			samples: []sample{{machine: "b", took: 20 * time.Second, joined: second(100)},
				{machine: "a", took: 10 * time.Second, joined: second(100)}},
			want: &v1alpha1.ProvisioningEstimate{TypicalSeconds: 15, Samples: 2, CountedUntil: second(100)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, next(tc.before, tc.samples)); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSampleOf(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*v1alpha1.Machine)
		want   bool
	}{
		"Joined":      {reason: "it took from the claim to the node", want: true},
		"OnItsWay":    {reason: "its duration is not known yet", change: func(m *v1alpha1.Machine) { m.Status.Progress.Step = 4 }},
		"StandAlone":  {reason: "it joins no cluster", change: func(m *v1alpha1.Machine) { m.Spec.TenantClusterRef = nil }},
		"Interrupted": {reason: "an hour in error is no measure", change: func(m *v1alpha1.Machine) { m.Status.Progress.Interrupted = true }},
		"NoProgress":  {reason: "an older manager kept none", change: func(m *v1alpha1.Machine) { m.Status.Progress = nil }},
		"Backwards":   {reason: "the clock was changed", change: func(m *v1alpha1.Machine) { m.Status.Progress.StartTime = second(9999) }},
	} {
		t.Run(name, func(t *testing.T) {
			machine := joined("m", 100, 1180)
			if tc.change != nil {
				tc.change(machine)
			}
			got, ok := sampleOf(machine)
			if ok != tc.want {
				t.Fatalf("%s: got %v, want %v", tc.reason, ok, tc.want)
			}
			if ok && got.took != 18*time.Minute {
				t.Errorf("took %s, want 18m", got.took)
			}
		})
	}
}

// joined is a Machine of type "big" that was claimed and joined at these seconds.
func joined(name string, claimed, joined int64) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: name, UID: types.UID(name)}}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "blue"}
	machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: "big"}
	machine.Status.Progress = &v1alpha1.MachineProgress{Step: 5, Steps: 5, StartTime: second(claimed), LastProgressTime: second(joined)}
	return machine
}
