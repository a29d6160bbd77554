// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// maxMessage bounds the message of a condition, in bytes. The API server takes no more than 32768.
const maxMessage = 4000

// outcome is what came of one round.
type outcome struct {
	// problems are what the author of the TenantCluster has to put right, or somebody has to wait for.
	problems []string
	// pending are pools that there are not yet, because what has their name has to go first.
	pending []string
	// conflict is true if somebody else has written first.
	conflict bool
	// errs are failed API calls, which are tried again.
	errs []error
}

// note sorts out what a write came to. What the tenant's API server refuses for its content is the author's.
func (o *outcome) note(p *pool, err error) {
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

// report writes the condition, if it has changed.
func (c *Controller) report(ctx context.Context, cluster *v1alpha1.TenantCluster, o outcome) error {
	if cluster.Spec.PrivateNodes == nil && meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionPoolsSynced) == nil {
		return nil // The tenant manages its own pools.
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionPoolsSynced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSynced,
		Message: "the tenant has the pools that privateNodes.autoNodes call for", ObservedGeneration: cluster.Generation,
		LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}
	switch {
	case len(o.problems) > 0:
		message := strings.Join(o.problems, "; ")
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalidPools, message[:min(len(message), maxMessage)]
	case len(o.pending) > 0:
		message := strings.Join(o.pending, "; ")
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonReplacingPools, message[:min(len(message), maxMessage)]
	case !cluster.DeletionTimestamp.IsZero():
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, v1alpha1.ReasonTenantDeleting, "the TenantCluster is being deleted, and its pools with it"
	}
	before := cluster.DeepCopy()
	meta.SetStatusCondition(&cluster.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(before.Status, cluster.Status) {
		return nil
	}
	err := c.planes.Management.Client.Status().Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of TenantCluster %s, %w", c.planes.TenantCluster, err)
	}
	return nil
}
