// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
)

// outcome is the result of one reconcile.
type outcome struct {
	// problems are pools that are not valid, or that need a NodeType that does not exist yet.
	problems []string
	// pending are pools that wait for the deletion of an object of their name.
	pending []string
	// conflict is true if another client has written first.
	conflict bool
	// errs are failed API calls, which are retried.
	errs []error
}

// record adds the result of a write. What the tenant's API server rejects for its content, the author has to correct.
func (o *outcome) record(p *pool, err error) {
	switch {
	case err == nil:
	case errors.Is(err, errBeingDeleted):
		o.pending = append(o.pending, fmt.Sprintf("%s: %v", p.where, err))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		o.problems = append(o.problems, fmt.Sprintf("%s: %v", p.where, err))
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		o.conflict = true
	default:
		o.errs = append(o.errs, fmt.Errorf("%s, %w", p.where, err))
	}
}

// writeStatus writes the condition PoolsSynced, if it has changed.
func (c *Controller) writeStatus(ctx context.Context, cluster *v1alpha1.TenantCluster, o outcome) error {
	if cluster.Spec.PrivateNodes == nil && meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionPoolsSynced) == nil {
		return nil // The tenant manages its own pools.
	}
	before := cluster.DeepCopy()
	condition := o.condition(!cluster.DeletionTimestamp.IsZero())
	condition.ObservedGeneration, condition.LastTransitionTime = cluster.Generation, metav1.NewTime(c.clock.Now())
	if !conditions.Set(&cluster.Status.Conditions, condition) {
		return nil
	}
	err := c.clusters.Management.Client.Status().Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of TenantCluster %s, %w", c.clusters.TenantCluster, err)
	}
	return nil
}

// condition summarizes the outcome for a TenantCluster, which may be being deleted.
func (o *outcome) condition(deleting bool) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionPoolsSynced, Status: metav1.ConditionFalse}
	switch {
	case len(o.problems) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonInvalidPools, strings.Join(o.problems, "; ")
	case len(o.pending) > 0:
		condition.Reason, condition.Message = v1alpha1.ReasonReplacingPools, strings.Join(o.pending, "; ")
	case deleting:
		condition.Reason, condition.Message = v1alpha1.ReasonTenantDeleting, "the TenantCluster is being deleted, and its pools with it"
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonSynced
		condition.Message = "the tenant has the pools that privateNodes.autoNodes call for"
	}
	condition.Message = conditions.Truncate(condition.Message, conditions.MaxMessage)
	return condition
}
