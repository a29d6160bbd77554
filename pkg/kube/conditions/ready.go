// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// waits are reasons of an object that is not ready but proceeds without help: it works, or waits for a server, for an
// object that it refers to, or for another controller. Any other reason needs someone to act.
var waits = map[string]bool{
	v1alpha1.ReasonNoCapacity:              true,
	v1alpha1.ReasonNoMatchingType:          true,
	v1alpha1.ReasonQuotaExceeded:           true,
	v1alpha1.ReasonTooManyClaims:           true,
	v1alpha1.ReasonNoAddress:               true,
	v1alpha1.ReasonClaiming:                true,
	v1alpha1.ReasonClaimed:                 true,
	v1alpha1.ReasonWaitingForHook:          true,
	v1alpha1.ReasonWaitingForBootstrapData: true,
	v1alpha1.ReasonProvisioning:            true,
	v1alpha1.ReasonWaitingForNode:          true,
	v1alpha1.ReasonDeprovisioning:          true,
	v1alpha1.ReasonProviderNotFound:        true,
	v1alpha1.ReasonNoNodeTypes:             true,
	v1alpha1.ReasonNotReported:             true,
	v1alpha1.ReasonReplacingPools:          true,
	v1alpha1.ReasonConfirmed:               true,
	v1alpha1.ReasonTenantDeleting:          true,
	v1alpha1.ReasonDraining:                true,
	v1alpha1.ReasonReturningServers:        true,
}

// Sum returns the condition Ready as the sum of others. If all are true, it has the reason and message of the first.
// Otherwise it has the reason of one that is not true, preferably one that needs someone to act, and all messages.
func Sum(first metav1.Condition, more ...metav1.Condition) metav1.Condition {
	wrong := slices.DeleteFunc(append([]metav1.Condition{first}, more...), func(condition metav1.Condition) bool {
		return condition.Status == metav1.ConditionTrue
	})
	if len(wrong) == 0 {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: first.Reason, Message: first.Message}
	}
	slices.SortStableFunc(wrong, func(a, b metav1.Condition) int {
		switch {
		case waits[a.Reason] == waits[b.Reason]:
			return 0
		case waits[b.Reason]:
			return -1
		}
		return 1
	})
	var messages []string
	for _, condition := range wrong {
		messages = append(messages, condition.Message)
	}
	return metav1.Condition{Status: wrong[0].Status, Reason: wrong[0].Reason, Message: strings.Join(messages, "; ")}
}

// SetReady sets the condition Ready for a generation of an object, and Reconciling or Stalled while Ready is not true.
// Exactly one of the three is true. Only for a server that is switched off on purpose, none is.
func SetReady[C Condition](conditions *[]C, ready metav1.Condition, generation int64, now metav1.Time) {
	ready.Type, ready.Message = v1alpha1.ConditionReady, Truncate(ready.Message, MaxMessage)
	ready.ObservedGeneration, ready.LastTransitionTime = generation, now
	abnormal := ""
	switch {
	case ready.Status == metav1.ConditionTrue, ready.Reason == v1alpha1.ReasonPoweredOff:
	case waits[ready.Reason]:
		abnormal = v1alpha1.ConditionReconciling
	default:
		abnormal = v1alpha1.ConditionStalled
	}
	*conditions = slices.DeleteFunc(*conditions, func(condition C) bool {
		kind := metav1.Condition(condition).Type
		return (kind == v1alpha1.ConditionReconciling || kind == v1alpha1.ConditionStalled) && kind != abnormal
	})
	Set(conditions, ready)
	if abnormal != "" {
		because := ready
		because.Type, because.Status = abnormal, metav1.ConditionTrue
		Set(conditions, because)
	}
}
