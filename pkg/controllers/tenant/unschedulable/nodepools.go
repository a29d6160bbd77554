// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package unschedulable

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"
)

// Reasons of the events on NodePools.
const (
	// ReasonNoCapacityType: the NodePool does not allow the capacity type of the servers.
	ReasonNoCapacityType = "NoCapacityType"
	// ReasonNoServerMatches: no server that the tenant may have could ever meet a requirement of the NodePool.
	ReasonNoServerMatches = "NoServerMatches"
)

// nodePoolPeriod is how soon a NodePool is checked again: BareMetalHosts get labels, and NodeTypes are created.
const nodePoolPeriod = 5 * time.Minute

// Meets returns whether some server that a NodePool could have meets a requirement. An error means that this is not known.
type Meets func(ctx context.Context, nodePool *karpenterv1.NodePool, requirement *labels.Requirement) (bool, error)

// NodePoolController writes an event on NodePools with a requirement that no server could meet. Core skips such a
// NodePool without naming the requirement.
type NodePoolController struct {
	provider     cloudprovider.CloudProvider
	capacityType string
	meets        Meets
	recorder     events.Recorder
}

// NewNodePoolController constructs a controller. The capacity type is that of all offerings.
func NewNodePoolController(provider cloudprovider.CloudProvider, capacityType string, meets Meets,
	recorder events.Recorder) *NodePoolController {
	return &NodePoolController{provider: provider, capacityType: capacityType, meets: meets, recorder: recorder}
}

// Name implements Karpenter's controller interface.
func (c *NodePoolController) Name() string { return "nodepool.check" }

// Reconcile checks the requirements of one NodePool.
func (c *NodePoolController) Reconcile(ctx context.Context, nodePool *karpenterv1.NodePool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !nodePool.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	var unmet []events.Event
	for _, from := range nodePool.Spec.Template.Spec.Requirements {
		reason, message, err := c.check(ctx, nodePool, newRequirement(corev1.NodeSelectorRequirement{
			Key: from.Key, Operator: from.Operator, Values: from.Values,
		}))
		if err != nil {
			return reconcile.Result{}, err
		}
		if reason != "" {
			unmet = append(unmet, events.Event{
				InvolvedObject: nodePool, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
				DedupeValues: []string{string(nodePool.UID), message},
			})
		}
	}
	c.recorder.Publish(unmet...)
	return reconcile.Result{RequeueAfter: nodePoolPeriod}, nil
}

// check returns why a requirement keeps a NodePool from ever having a node. The reason is empty if it does not.
func (c *NodePoolController) check(
	ctx context.Context, nodePool *karpenterv1.NodePool, one requirement,
) (reason, message string, err error) {
	if one.Requirement == nil {
		return "", "", nil // core's validation reports it
	}
	if one.key == karpenterv1.CapacityTypeLabelKey {
		if one.Matches(labels.Set{one.key: c.capacityType}) {
			return "", "", nil
		}
		return ReasonNoCapacityType, fmt.Sprintf("requirement %s leaves out %s, the only capacity type that servers have here: "+
			"allow it, or run the provider with another --capacity-type", one.text, c.capacityType), nil
	}
	if !karpenterv1.WellKnownLabels.Has(one.key) {
		return "", "", nil // the NodePool gives its nodes this label
	}
	met, err := c.meets(ctx, nodePool, one.Requirement)
	if err != nil || met {
		return "", "", err
	}
	return ReasonNoServerMatches, fmt.Sprintf("requirement %s is met by no server that this tenant may have: "+
		"correct it, or label the BareMetalHosts", one.text), nil
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *NodePoolController) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpenterv1.NodePool{},
			builder.WithPredicates(nodepoolutils.IsManagedPredicateFuncs(c.provider), predicate.GenerationChangedPredicate{})).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
