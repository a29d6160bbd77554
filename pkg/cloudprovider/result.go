// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// claimResult is what the manager has decided about a Machine.
type claimResult int

const (
	// pending: no decision yet, or one about an earlier generation.
	pending claimResult = iota
	// claimed: the Machine has a server.
	claimed
	// noServer: nothing that fits is free now.
	noServer
	// refused: the Machine will not get a server, whatever is free.
	refused
)

// resultOf reads the decision from the status of a Machine, with the condition that it is in.
func resultOf(machine *v1alpha1.Machine) (claimResult, metav1.Condition) {
	condition := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionClaimed)
	_, chosen := machine.Host()
	switch {
	case condition == nil:
		return pending, metav1.Condition{}
	case condition.Status == metav1.ConditionTrue:
		if machine.Status.ProviderID == "" {
			return pending, *condition
		}
		return claimed, *condition
	case condition.Status != metav1.ConditionFalse, condition.ObservedGeneration != machine.Generation, chosen:
		return pending, *condition
	}
	switch condition.Reason {
	case v1alpha1.ReasonClaiming:
		return pending, *condition
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNotAllowed:
		return refused, *condition
	}
	// Also for a reason that this version does not know: while the NodeClaim stays, core makes none for any pod of the tenant.
	return noServer, *condition
}
