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

// nodeClassOf returns the MetalNodeClass of a NodeClaim, if the class is ready. If not, core deletes the NodeClaim, as
// with other providers, and schedules its pods again. The read is live: caches follow NodeClaims and classes
// separately, so a cache may have the NodeClaim and an older class. Then the manager would claim a server that it
// cannot install.
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
		// The class was changed, and its condition is about an earlier generation.
	case ready.IsTrue():
		return class, nil
	case ready.IsFalse():
		return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("MetalNodeClass %s, %s", reference.Name, notReadyReasons(class)))
	}
	return nil, createError(reasonNodeClassUnknown, fmt.Errorf("whether MetalNodeClass %s is ready is not known yet", reference.Name))
}

// notReadyReasons joins the messages of a class's false conditions. Ready itself only names these conditions.
func notReadyReasons(class *v1alpha1.MetalNodeClass) string {
	var reasons []string
	for _, condition := range class.Status.Conditions {
		if condition.Type != status.ConditionReady && condition.Status == metav1.ConditionFalse {
			reasons = append(reasons, condition.Reason+": "+condition.Message)
		}
	}
	return strings.Join(reasons, "; ")
}
