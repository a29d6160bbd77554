// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// observation is what one change of a Machine tells. Zero values tell nothing.
type observation struct {
	nodeType string
	// claimed, givenUp and drifted tell that the condition has become true; the latter with its reason.
	claimed          bool
	givenUp, drifted string
	// steps that have ended, and how long each took.
	steps map[string]time.Duration
	// joined tells that the Machine has become a node, and provisioned how long that took from its claim.
	joined      bool
	provisioned time.Duration
}

// observe tells what has happened between two states of a Machine. Times are those that are written in its conditions, to
// the second, so it makes no difference when the change is seen.
func observe(before, after *v1alpha1.Machine) observation {
	seen := observation{nodeType: nodeTypeOf(after), steps: map[string]time.Duration{}}
	began := func(conditionType string) *metav1.Condition {
		now := meta.FindStatusCondition(after.Status.Conditions, conditionType)
		if now == nil || now.Status != metav1.ConditionTrue || meta.IsStatusConditionTrue(before.Status.Conditions, conditionType) {
			return nil
		}
		return now
	}
	if claimed := began(v1alpha1.ConditionClaimed); claimed != nil {
		seen.claimed = true
	}
	claimed := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionClaimed)
	provisioned := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionProvisioned)
	if now := began(v1alpha1.ConditionProvisioned); now != nil && claimed != nil {
		seen.steps[StepInstall] = since(claimed.LastTransitionTime, now)
	}
	if now := began(v1alpha1.ConditionJoined); now != nil && provisioned != nil && claimed != nil {
		seen.steps[StepJoin] = since(provisioned.LastTransitionTime, now)
		seen.joined, seen.provisioned = true, since(claimed.LastTransitionTime, now)
	}
	if now := began(v1alpha1.ConditionGivenUp); now != nil {
		seen.givenUp = now.Reason
	}
	if now := began(v1alpha1.ConditionDrifted); now != nil {
		seen.drifted = now.Reason
	}
	return seen
}

// since is never negative, whatever clocks have said.
func since(start metav1.Time, end *metav1.Condition) time.Duration {
	return max(end.LastTransitionTime.Sub(start.Time), 0)
}
