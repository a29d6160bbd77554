// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// What a step usually takes is the median of the other servers of the type.
func TestTimelineTypical(t *testing.T) {
	// other adds a Machine that was installed and joined in so many minutes.
	other := func(name string, installs, joins int, change func(*v1alpha1.Machine)) func(*Snapshot) {
		return func(s *Snapshot) {
			withMachine(name, "on-"+name, v1alpha1.MachineJoined, func(m *v1alpha1.Machine) {
				moment := m.Status.Conditions[0].LastTransitionTime
				for _, step := range []struct {
					condition string
					took      int
				}{{v1alpha1.ConditionProvisioned, installs}, {v1alpha1.ConditionJoined, joins}} {
					if moment = metav1.NewTime(moment.Add(time.Duration(step.took) * time.Minute)); step.took != 0 {
						m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: step.condition, Status: metav1.ConditionTrue,
							LastTransitionTime: moment})
					}
				}
				if change != nil {
					change(m)
				}
			})(s)
		}
	}
	inspected := func(name string, minutes int, labels map[string]string) func(*Snapshot) {
		return withHost(name, func(host *bmov1alpha1.BareMetalHost) {
			end := metav1.NewTime(time.Unix(0, 0).Add(time.Duration(minutes) * time.Minute))
			host.Status.OperationHistory.Inspect = bmov1alpha1.OperationMetric{Start: metav1.NewTime(time.Unix(0, 0)), End: end}
			if labels != nil {
				host.Labels = labels
			}
		})
	}
	estimate := func(s *Snapshot) {
		s.Management.NodeTypes[0].Status.Provisioning = &v1alpha1.ProvisioningEstimate{TypicalSeconds: 1140}
	}
	for name, tc := range map[string]struct {
		reason, kind, name string
		snapshot           *Snapshot
		want               map[string]time.Duration
	}{
		"alone": {reason: "itself is no measure", kind: "machine", name: "m1", snapshot: fixture(other("m1", 10, 2, nil), estimate),
			want: map[string]time.Duration{"from the claim to the node": 19 * time.Minute}},
		"median": {reason: "one that took a day does not count more than the others", kind: "machine", name: "m2",
			snapshot: fixture(other("m1", 5, 1, nil), other("m2", 10, 2, nil), other("m3", 12, 3, nil), other("m4", 1440, 4, nil)),
			want:     map[string]time.Duration{installed: 12 * time.Minute, boots: 3 * time.Minute}},
		"on the way": {reason: "what has not ended is no measure", kind: "machine", name: "m1",
			snapshot: fixture(other("m1", 10, 0, nil), other("m2", 0, 0, nil)), want: map[string]time.Duration{}},
		"interrupted": {reason: "an hour in error is no measure", kind: "machine", name: "m1",
			snapshot: fixture(other("m1", 9, 1, nil), other("m2", 60, 2, func(m *v1alpha1.Machine) {
				m.Status.Progress = &v1alpha1.MachineProgress{Interrupted: true}
			}), other("m3", 10, 2, nil)), want: map[string]time.Duration{installed: 10 * time.Minute, boots: 2 * time.Minute}},
		"deleted on the way": {reason: "what it did not reach took no time", kind: "host", name: "on-m1",
			snapshot: fixture(other("m1", 10, 2, nil), other("m2", 0, 0, func(m *v1alpha1.Machine) { m.DeletionTimestamp = &m.CreationTimestamp })),
			want:     map[string]time.Duration{}},
		"host": {reason: "what Metal3 did to the others, of the type", kind: "host", name: "a",
			snapshot: fixture(inspected("a", 9, nil), inspected("b", 6, nil), inspected("c", 60, map[string]string{"type": "cpu"})),
			want:     map[string]time.Duration{"Metal3 inspects it": 6 * time.Minute}},
		"host of no type": {reason: "nothing is like it", kind: "host", name: "a",
			snapshot: fixture(inspected("a", 9, map[string]string{"type": "spare"}), inspected("b", 6, nil)), want: map[string]time.Duration{}},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := New(tc.snapshot).Timeline(tc.kind, tc.name)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]time.Duration{}
			for _, step := range steps {
				if step.TypicalSeconds != 0 {
					got[step.Name] = time.Duration(step.TypicalSeconds) * time.Second
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
