// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package poolcheck knows what keeps a NodePool from ever having a node: requirements that no server could meet. Core
// leaves such a pool out and goes on with the others; here its author is told which requirement it is.
package poolcheck

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"
)

// recheckPeriod is how soon a pool with a problem is looked at again: hosts are given labels, and types are made.
const recheckPeriod = 5 * time.Minute

// Meets tells whether some server that a pool could have meets a requirement. The error is that this is not known.
type Meets func(ctx context.Context, nodePool *karpenterv1.NodePool, requirement *scheduling.Requirement) (bool, error)

// Controller puts events on NodePools that no server could serve.
type Controller struct {
	provider     cloudprovider.CloudProvider
	capacityType string
	meets        Meets
	recorder     events.Recorder
}

// NewController returns a controller. The capacity type is the one that all offerings have.
func NewController(provider cloudprovider.CloudProvider, capacityType string, meets Meets, recorder events.Recorder) *Controller {
	return &Controller{provider: provider, capacityType: capacityType, meets: meets, recorder: recorder}
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return "nodepool.check" }

// Reconcile looks at one pool.
func (c *Controller) Reconcile(ctx context.Context, nodePool *karpenterv1.NodePool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !nodePool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	var unknown error
	problems := check(nodePool, c.capacityType, func(requirement *scheduling.Requirement) bool {
		met, err := c.meets(ctx, nodePool, requirement)
		if err != nil {
			unknown = err
		}
		return met || err != nil
	})
	if unknown != nil {
		return reconcile.Result{}, unknown
	}
	for _, problem := range problems {
		c.recorder.Publish(events.Event{
			InvolvedObject: nodePool,
			Type:           corev1.EventTypeWarning,
			Reason:         problem.reason,
			Message:        problem.message,
			DedupeValues:   []string{string(nodePool.UID), problem.message},
		})
	}
	return reconcile.Result{RequeueAfter: recheckPeriod}, nil
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpenterv1.NodePool{}, builder.WithPredicates(nodepoolutils.IsManagedPredicateFuncs(c.provider), predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
