// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeprovider

import (
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// rejection is why a NodeType could not be written as its template says.
type rejection struct {
	reason, message string
	// owned is true when the NodeType exists all the same.
	owned bool
}

// conflict is for a NodeType of that name that is not the provider's.
func conflict(provider *v1alpha1.NodeProvider, nodeType *v1alpha1.NodeType) *rejection {
	owner := "has no owner"
	if controller := metav1.GetControllerOf(nodeType); controller != nil {
		owner = fmt.Sprintf("belongs to %s %s", controller.Kind, controller.Name)
		if controller.Name == provider.Name {
			owner += fmt.Sprintf(" with another UID (%s)", controller.UID)
		}
	}
	return &rejection{
		reason: v1alpha1.ReasonNameConflict,
		message: fmt.Sprintf("NodeType %s %s and is not taken over by NodeProvider %s: rename the type in one of the two, or delete it there",
			nodeType.Name, owner, provider.Name),
	}
}

// invalidSelector is for a NodeType that selects no hosts. It is written all the same.
func invalidSelector(from *v1alpha1.NodeTypeTemplate) *rejection {
	if _, err := capacity.Selector(from.BareMetalHosts.Selector); err != nil {
		return &rejection{
			reason:  v1alpha1.ReasonInvalidSelector,
			message: fmt.Sprintf("NodeType %s selects no servers: %v: correct it", from.Name, err),
			owned:   true,
		}
	}
	return nil
}

// rejected returns a rejection if the API server will never accept the NodeType, and the error if it may later.
func rejected(name string, owned bool, err error) (*rejection, error) {
	if !apierrors.IsInvalid(err) {
		return nil, err
	}
	return &rejection{
		reason:  v1alpha1.ReasonInvalidSpec,
		message: fmt.Sprintf("NodeType %s is not valid and was not written: %v", name, err),
		owned:   owned,
	}, nil
}

// synced is the condition for these rejections. Its reason is that of the first.
func synced(provider *v1alpha1.NodeProvider, rejections []rejection, now time.Time) metav1.Condition {
	condition := metav1.Condition{
		Type:               v1alpha1.ConditionSynced,
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReasonSynced,
		Message:            "every NodeType is as the spec says",
		ObservedGeneration: provider.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	if len(rejections) > 0 {
		messages := make([]string, len(rejections))
		for i := range rejections {
			messages[i] = rejections[i].message
		}
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, rejections[0].reason, strings.Join(messages, "; ")
	}
	return condition
}
