// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetype

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// hardwareFits is the condition that the servers are as big as the type says. Smaller ones are not claimed. Either their
// labels or the type may be wrong.
func hardwareFits(nodeType *v1alpha1.NodeType, summary inventory.Summary, invalid *invalid) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionHardwareFits}
	switch small := summary.Capacity.TooSmall; {
	case invalid != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, invalid.reason, invalid.message
	case small > 0:
		verb := "have"
		if small == 1 {
			verb = "has"
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonHostsTooSmall
		condition.Message = fmt.Sprintf("%d of %d servers %s less than resources says and cannot be claimed as %s: %s: correct resources, or "+
			"the labels of the servers",
			small, summary.Capacity.Total, verb, nodeType.Name, inventory.Named(summary.TooSmall, int(small)))
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonBigEnough
		condition.Message = "no server is known to have less than resources says"
	}
	return condition
}
