// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// hardwareFits tells whether the servers are as big as the type says. The others are not claimed, and whoever has labelled
// them or written the type is the one to know which of the two is wrong.
func hardwareFits(nodeType *v1alpha1.NodeType, summary hosts.Summary, problem *problem) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionHardwareFits}
	switch small := summary.Capacity.TooSmall; {
	case problem != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, problem.reason, problem.message
	case small > 0:
		verb := "have"
		if small == 1 {
			verb = "has"
		}
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonHostsTooSmall
		condition.Message = fmt.Sprintf("%d of %d servers %s less than resources says and cannot be claimed as %s: %s: correct resources, or the labels of the servers",
			small, summary.Capacity.Total, verb, nodeType.Name, hosts.Named(summary.TooSmall, int(small)))
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonBigEnough
		condition.Message = "no server is known to have less than resources says"
	}
	return condition
}
