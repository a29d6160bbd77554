// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/nodetype"
)

// problem is something in a NodeProvider that its author has to mend.
type problem struct {
	reason, message string
	// owned is true when the NodeType exists all the same.
	owned bool
}

// conflict says that the NodeType of that name is not the provider's.
func conflict(provider *v1alpha1.NodeProvider, nodeType *v1alpha1.NodeType) *problem {
	owner := "was made by hand"
	if controller := metav1.GetControllerOf(nodeType); controller != nil {
		owner = fmt.Sprintf("belongs to %s %s", controller.Kind, controller.Name)
		if controller.Name == provider.Name {
			owner += fmt.Sprintf(" of an earlier life (UID %s)", controller.UID)
		}
	}
	return &problem{
		reason: v1alpha1.ReasonNameConflict,
		message: fmt.Sprintf("NodeType %s %s and is not taken over by NodeProvider %s: rename the type in one of the two, or delete it there",
			nodeType.Name, owner, provider.Name),
	}
}

// invalidSelector says that the NodeType, which is written all the same, selects no hosts.
func invalidSelector(from *v1alpha1.NodeTypeTemplate) *problem {
	if _, err := nodetype.Selector(from.BareMetalHosts.Selector); err != nil {
		return &problem{
			reason:  v1alpha1.ReasonInvalidSelector,
			message: fmt.Sprintf("NodeType %s selects no servers: %v: correct it", from.Name, err),
			owned:   true,
		}
	}
	return nil
}

// refused tells what the API server will never accept from what can be tried again.
func refused(name string, owned bool, err error) (*problem, error) {
	if !apierrors.IsInvalid(err) {
		return nil, err
	}
	return &problem{
		reason:  v1alpha1.ReasonInvalidSpec,
		message: fmt.Sprintf("NodeType %s is not valid and was not written: %v", name, err),
		owned:   owned,
	}, nil
}

// synced sums the problems up. The reason is that of the first.
func synced(provider *v1alpha1.NodeProvider, problems []problem, now time.Time) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionSynced,
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReasonSynced,
		Message:            "every NodeType is as the spec says",
		ObservedGeneration: provider.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	if len(problems) > 0 {
		messages := make([]string, len(problems))
		for i := range problems {
			messages[i] = problems[i].message
		}
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, problems[0].reason, strings.Join(messages, "; ")
	}
	return condition
}
