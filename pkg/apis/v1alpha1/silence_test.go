// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestSilentProvider(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason  string
		renewed *time.Time
		deleted bool
		refused bool
		want    string
	}{
		"Never":   {reason: "there is no provider yet, or one of an earlier version"},
		"Now":     {reason: "it works", renewed: ptr.To(now)},
		"Missed":  {reason: "another one takes over", renewed: ptr.To(now.Add(-ProviderSilence + time.Second))},
		"Silent":  {reason: "none has taken over", renewed: ptr.To(now.Add(-ProviderSilence)), want: ReasonProviderSilent},
		"Ahead":   {reason: "its clock is a bit wrong", renewed: ptr.To(now.Add(time.Minute))},
		"Deleted": {reason: "its provider may be gone before its servers are back", renewed: ptr.To(now.Add(-time.Hour)), deleted: true},
		"Refused": {reason: "it is known why", renewed: ptr.To(now.Add(-time.Hour)), refused: true, want: ReasonKubeconfigRefused},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := &TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: "acme"}}
			if tc.renewed != nil {
				tenant.Status.ProviderRenewTime = ptr.To(metav1.NewTime(*tc.renewed))
			}
			if tc.deleted {
				tenant.DeletionTimestamp = ptr.To(metav1.NewTime(now))
			}
			if tc.refused {
				tenant.Status.Conditions = []metav1.Condition{{Type: ConditionKubeconfigAccepted, Status: metav1.ConditionFalse,
					Reason: ReasonKubeconfigRefused}}
			}
			got := ""
			for _, condition := range tenant.Blocked(now) {
				got += condition.Reason
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
