// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// nodeClassOf returns the MetalNodeClass that a NodeClaim refers to, if it is ready. If it does not exist or is not ready, core
// deletes the NodeClaim, as with other providers, and schedules its pods again. It is read live: NodeClaims and classes are followed apart,
// so that a cache may have a NodeClaim, and the class as it was before. A server would be claimed that cannot be installed.
func (c *CloudProvider) nodeClassOf(ctx context.Context, nodeClaim *karpv1.NodeClaim) (*v1alpha1.MetalNodeClass, error) {
	reference := nodeClaim.Spec.NodeClassRef
	if reference == nil {
		return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("NodeClaim %s has no nodeClassRef", nodeClaim.Name))
	}
	class := &v1alpha1.MetalNodeClass{}
	found, err := kube.Find(ctx, c.live, types.NamespacedName{Name: reference.Name}, class)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("MetalNodeClass %s does not exist", reference.Name))
	}
	if !class.DeletionTimestamp.IsZero() {
		return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("MetalNodeClass %s is being deleted", reference.Name))
	}
	ready := class.StatusConditions().Root()
	switch {
	case ready != nil && ready.ObservedGeneration != class.Generation:
		// It was changed, and its condition is about an earlier generation.
	case ready.IsTrue():
		return class, nil
	case ready.IsFalse():
		return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("MetalNodeClass %s, %s", reference.Name, notReadyReasons(class)))
	}
	return nil, createError(reasonNodeClassUnknown, fmt.Errorf("whether MetalNodeClass %s is ready is not known yet", reference.Name))
}

// notReadyReasons are the messages of the conditions of a class that is not ready. Ready itself only names the others.
func notReadyReasons(class *v1alpha1.MetalNodeClass) string {
	var reasons []string
	for _, condition := range class.Status.Conditions {
		if condition.Type != status.ConditionReady && condition.Status == metav1.ConditionFalse {
			reasons = append(reasons, condition.Reason+": "+condition.Message)
		}
	}
	return strings.Join(reasons, "; ")
}
