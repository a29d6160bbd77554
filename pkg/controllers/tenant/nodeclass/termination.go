// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

const (
	// ReasonInUse is the reason of the event on a class that is being deleted and still has NodeClaims.
	ReasonInUse = "InUse"
	// terminationPeriod is how often a class that waits for its NodeClaims is reconciled, in case an event was lost.
	terminationPeriod = time.Minute
	// namedClaims bounds how many NodeClaims the event names.
	namedClaims = 5
)

// finalize removes the finalizer of a class once no NodeClaim refers to it.
func (c *Controller) finalize(ctx context.Context, nodeClass *v1alpha1.MetalNodeClass) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(nodeClass, v1alpha1.NodeClassTerminationFinalizer) {
		return reconcile.Result{}, nil
	}
	// The cache may not have a NodeClaim that was just created.
	nodeClaims := &karpv1.NodeClaimList{}
	if err := c.clusters.Tenant.Live.List(ctx, nodeClaims); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the nodeclaims of MetalNodeClass %s, %w", nodeClass.Name, err)
	}
	var names []string
	for i := range nodeClaims.Items {
		if refersTo(&nodeClaims.Items[i], nodeClass.Name) {
			names = append(names, nodeClaims.Items[i].Name)
		}
	}
	if len(names) > 0 {
		c.recorder.Publish(inUseEvent(nodeClass, names))
		return reconcile.Result{RequeueAfter: terminationPeriod}, nil
	}
	return notWritten(controllers.Patch(ctx, c.clusters.Tenant.Client, nodeClass, "removing the finalizer of", func() {
		controllerutil.RemoveFinalizer(nodeClass, v1alpha1.NodeClassTerminationFinalizer)
	}))
}

func inUseEvent(nodeClass *v1alpha1.MetalNodeClass, nodeClaims []string) events.Event {
	slices.Sort(nodeClaims)
	listed := conditions.List(nodeClaims, namedClaims)
	return events.Event{
		InvolvedObject: nodeClass,
		Type:           corev1.EventTypeNormal,
		Reason:         ReasonInUse,
		Message:        fmt.Sprintf("Waiting for NodeClaims to go before this class does: %s", listed),
		DedupeValues:   []string{string(nodeClass.UID), listed},
	}
}
