// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// verdict is the manager's answer to a Machine.
type verdict int

const (
	// pending: no answer yet, or one to an earlier question.
	pending verdict = iota
	// claimed: the server is the Machine's.
	claimed
	// noServer: nothing that fits is free now.
	noServer
	// refused: the Machine will not get a server, whatever is free.
	refused
)

// answerOf reads the manager's answer from the status of a Machine, with the condition that says it.
func answerOf(machine *v1alpha1.Machine) (verdict, metav1.Condition) {
	condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionClaimed)
	switch {
	case condition == nil:
		return pending, metav1.Condition{}
	case condition.Status == metav1.ConditionTrue:
		if machine.Status.ProviderID == "" {
			return pending, *condition
		}
		return claimed, *condition
	case condition.Status != metav1.ConditionFalse, condition.ObservedGeneration != machine.Generation, machine.Status.HostRef != nil:
		return pending, *condition
	}
	switch condition.Reason {
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonNoMatchingType, v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonTenantDeleting:
		return noServer, *condition
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNotAllowed:
		return refused, *condition
	}
	return pending, *condition
}
