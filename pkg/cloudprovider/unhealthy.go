// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// maxUnhealthy is how many bytes of the condition of a node are written into a Machine. The tenant controls them.
const maxUnhealthy = 512

// recordUnhealthy annotates a Machine that is deleted because its node is unhealthy, so that the manager quarantines the
// server. Otherwise Karpenter might replace a broken server by itself.
func (c *CloudProvider) recordUnhealthy(ctx context.Context, machine *v1alpha1.Machine, nodeClaim *karpenterv1.NodeClaim) error {
	if !isRepair(nodeClaim) || machine.Annotations[v1alpha1.UnhealthyAnnotationKey] != "" {
		return nil
	}
	node := &corev1.Node{}
	if err := c.tenant.Get(ctx, types.NamespacedName{Name: nodeClaim.Status.NodeName}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading node %s, %w", nodeClaim.Status.NodeName, err)
	}
	why := c.unhealthy(node, nodeClaim.DeletionTimestamp.Time)
	if why == "" {
		return nil
	}
	before := machine.DeepCopy()
	if machine.Annotations == nil {
		machine.Annotations = map[string]string{}
	}
	machine.Annotations[v1alpha1.UnhealthyAnnotationKey] = why
	if err := c.management.Client.Patch(ctx, machine, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("recording on machine %s that its node is unhealthy, %w", machine.Name, err)
	}
	return nil
}

// isRepair returns whether core has deleted the NodeClaim to replace an unhealthy node: then pods cannot delay it. With a
// terminationGracePeriod they have some time from the deletion on.
func isRepair(nodeClaim *karpenterv1.NodeClaim) bool {
	if nodeClaim.DeletionTimestamp.IsZero() || nodeClaim.Status.NodeName == "" {
		return false
	}
	end, err := time.Parse(time.RFC3339, nodeClaim.Annotations[karpenterv1.NodeClaimTerminationTimestampAnnotationKey])
	return err == nil && !end.After(nodeClaim.DeletionTimestamp.Time)
}

// unhealthy returns the condition of a node that had lasted for longer than is tolerated, "" if there was none.
func (c *CloudProvider) unhealthy(node *corev1.Node, at time.Time) string {
	for _, policy := range c.RepairPolicies() {
		for _, condition := range node.Status.Conditions {
			if condition.Type == policy.ConditionType && condition.Status == policy.ConditionStatus &&
				!condition.LastTransitionTime.Add(policy.TolerationDuration).After(at) {
				why := fmt.Sprintf("%s is %s since %s: %s", condition.Type, condition.Status,
					condition.LastTransitionTime.UTC().Format(time.RFC3339), condition.Message)
				return strings.ToValidUTF8(why[:min(len(why), maxUnhealthy)], "")
			}
		}
	}
	return ""
}
