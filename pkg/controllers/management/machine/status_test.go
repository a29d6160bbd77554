// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestReadyFollowsFacts: Ready, Reconciling or Stalled is true, and says what the Machine waits for or why it gets no further.
func TestReadyFollowsFacts(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		observed observation
		want     string
	}{
		"NoCapacity": {"a server may become free", observation{phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonNoCapacity},
			v1alpha1.ConditionReconciling},
		"NoMatchingType": {"a NodeType may be written with it",
			observation{phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonNoMatchingType},
			v1alpha1.ConditionReconciling},
		"InvalidSpec": {"someone has to correct it", observation{phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonInvalidSpec},
			v1alpha1.ConditionStalled},
		"NotAllowed": {"someone has to allow it", observation{phase: v1alpha1.MachinePending, reason: v1alpha1.ReasonNotAllowed},
			v1alpha1.ConditionStalled},
		"Error": {"Metal3 or its operator has to mend the server", observation{phase: v1alpha1.MachineFailed, reason: v1alpha1.ReasonHostError},
			v1alpha1.ConditionStalled},
		"GivenUp": {"someone has to delete it", observation{phase: v1alpha1.MachineFailed, reason: v1alpha1.ReasonDeadlineExceeded,
			givenUp: v1alpha1.ReasonDeadlineExceeded}, v1alpha1.ConditionStalled},
		"Released": {"the server is being cleaned", observation{phase: v1alpha1.MachineReleasing, reason: v1alpha1.ReasonDeprovisioning},
			v1alpha1.ConditionReconciling},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "one", Generation: 3}}
			tc.observed.message = "the message"
			machine.Status = nextStatus(machine, tc.observed, metav1.Now())
			for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				is := condition(machine, kind)
				if is.Status == metav1.ConditionTrue != (kind == tc.want) || is.Status == metav1.ConditionTrue && is.Message != "the message" {
					t.Errorf("%s: %s is %+v, want %s", tc.reason, kind, is, tc.want)
				}
			}
			if machine.Status.ObservedGeneration != 3 {
				t.Errorf("observedGeneration %d, want 3", machine.Status.ObservedGeneration)
			}
		})
	}
}
