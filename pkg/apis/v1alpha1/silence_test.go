// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBlocked(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	silent := condition(ConditionReady, metav1.ConditionUnknown, ReasonProviderSilent)
	refused := condition(ConditionKubeconfigAccepted, metav1.ConditionFalse, ReasonKubeconfigRefused)
	for name, tc := range map[string]struct {
		reason     string
		conditions []metav1.Condition
		want       string
	}{
		"Never": {reason: "there is no provider yet, or one of an earlier version"},
		"Works": {reason: "it renews", conditions: []metav1.Condition{
			condition(ConditionReady, metav1.ConditionTrue, ReasonIdentified)}},
		"NotReady": {reason: "its pools are wrong, and it says so", conditions: []metav1.Condition{
			condition(ConditionReady, metav1.ConditionFalse, ReasonInvalidPools)}},
		"Silent":  {reason: "none has taken over", conditions: []metav1.Condition{silent}, want: ReasonProviderSilent},
		"Refused": {reason: "it is known why", conditions: []metav1.Condition{silent, refused}, want: ReasonKubeconfigRefused},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, condition := range (&TenantCluster{Status: TenantClusterStatus{Conditions: tc.conditions}}).Blocked() {
				got += condition.Reason
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
