// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestSum(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Status: status, Reason: reason, Message: message}
	}
	fine := condition(metav1.ConditionTrue, v1alpha1.ReasonSynced, "it is synced")
	waiting := condition(metav1.ConditionUnknown, v1alpha1.ReasonNotReported, "it waits")
	wrong := condition(metav1.ConditionFalse, v1alpha1.ReasonInvalidPools, "it is wrong")
	for name, tc := range map[string]struct {
		reason     string
		conditions []metav1.Condition
		want       metav1.Condition
	}{
		"Fine":    {"the first says what the object is", []metav1.Condition{fine, condition(metav1.ConditionTrue, "Other", "other")}, fine},
		"Waiting": {"unknown is not true", []metav1.Condition{fine, waiting}, waiting},
		"Wrong":   {"one is enough", []metav1.Condition{wrong, fine}, wrong},
		"WrongIsUrgent": {"someone has to act, whatever else is waited for", []metav1.Condition{waiting, wrong},
			condition(wrong.Status, wrong.Reason, "it is wrong; it waits")},
		"FirstOfSeveral": {"of equals the first has the reason", []metav1.Condition{wrong, condition(metav1.ConditionFalse, "More", "more")},
			condition(wrong.Status, wrong.Reason, "it is wrong; more")},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Sum(tc.conditions[0], tc.conditions[1:]...)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestSetReady takes an object through its states: exactly one of the three conditions is true in each, and a condition that stays as it
// was keeps its time.
func TestSetReady(t *testing.T) {
	type state = map[string]metav1.ConditionStatus
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	other := metav1.Condition{Type: v1alpha1.ConditionSynced, Status: yes}
	all := []metav1.Condition{other}
	for i, step := range []struct {
		why    string
		status metav1.ConditionStatus
		reason string
		want   state
	}{
		{"a new one waits", no, v1alpha1.ReasonNoCapacity, state{"Ready": no, "Reconciling": yes}},
		{"it is being installed", no, v1alpha1.ReasonProvisioning, state{"Ready": no, "Reconciling": yes}},
		{"its server is broken", no, v1alpha1.ReasonHostError, state{"Ready": no, "Stalled": yes}},
		{"a reason that no list has is for people", no, "SomethingElse", state{"Ready": no, "Stalled": yes}},
		{"it is in use", yes, v1alpha1.ReasonJoined, state{"Ready": yes}},
		{"it is switched off, as it is to be", no, v1alpha1.ReasonPoweredOff, state{"Ready": no}},
		{"it is given back", no, v1alpha1.ReasonDeprovisioning, state{"Ready": no, "Reconciling": yes}},
	} {
		now := metav1.NewTime(time.Unix(int64(i), 0))
		before := Find(all, v1alpha1.ConditionReady)
		SetReady(&all, metav1.Condition{Status: step.status, Reason: step.reason, Message: step.why}, int64(i), now)
		got := state{}
		for _, condition := range all[1:] {
			got[condition.Type] = condition.Status
			if condition.Reason != step.reason || condition.Message != step.why || condition.ObservedGeneration != int64(i) {
				t.Errorf("%s: %+v", step.why, condition)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" || all[0] != other {
			t.Errorf("%s (-want +got):\n%s", step.why, diff)
		}
		after := Find(all, v1alpha1.ConditionReady)
		if changed := before.Status != after.Status; changed && after.LastTransitionTime != now ||
			!changed && after.LastTransitionTime != before.LastTransitionTime {
			t.Errorf("%s: Ready is so since %v, before since %v", step.why, after.LastTransitionTime, before.LastTransitionTime)
		}
	}
}
