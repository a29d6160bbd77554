// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	concurrentReconciles = 10
)

// Controller tells the tenant of its Machines, and deletes the NodeClaims of those that the manager has given up.
type Controller struct {
	clock    clock.PassiveClock
	planes   tenant.Planes
	recorder events.Recorder
}

// NewController constructs a progress controller.
func NewController(clk clock.PassiveClock, planes tenant.Planes, recorder events.Recorder) *Controller {
	return &Controller{clock: clk, planes: planes, recorder: recorder}
}

// Reconcile tells what one Machine is doing. It writes only what has changed.
func (c *Controller) Reconcile(ctx context.Context, machine *v1alpha1.Machine) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// 1. Only Machines that were made for a NodeClaim. What is being deleted has nothing more to tell.
	if !c.tells(machine) || !machine.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	nodeClaim := &karpv1.NodeClaim{}
	if err := c.planes.Tenant.Client.Get(ctx, client.ObjectKey{Name: machine.Labels[v1alpha1.NodeClaimLabelKey]}, nodeClaim); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // the garbage collector's business
		}
		return reconcile.Result{}, fmt.Errorf("reading nodeclaim %s, %w", machine.Labels[v1alpha1.NodeClaimLabelKey], err)
	}
	if !tenant.MadeFor(machine, nodeClaim) || !nodeClaim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	// 2. Where it is. Core finds NodeClaims without a provider ID unfinished, and writes them itself without looking.
	ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || nodeClaim.Status.ProviderID == "" {
		return reconcile.Result{}, nil
	}
	if err := c.tellNodeClaim(ctx, nodeClaim, *ready); err != nil {
		return tenant.RetryConflict(client.IgnoreNotFound(err))
	}
	// 3. It has been given up.
	if meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionGivenUp) {
		return reconcile.Result{}, c.giveUp(ctx, machine, nodeClaim)
	}
	// 4. Its node is up, and its server is not well, or well again.
	if meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionJoined) {
		if err := c.tellNode(ctx, machine, *ready); err != nil {
			return tenant.RetryConflict(client.IgnoreNotFound(err))
		}
	}
	return reconcile.Result{}, nil
}

func (c *Controller) tells(machine *v1alpha1.Machine) bool {
	return c.planes.Owns(machine) && machine.Labels[v1alpha1.NodeClaimLabelKey] != ""
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string {
	return "machine.progress"
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.planes.Management.Cache, &v1alpha1.Machine{},
			&handler.TypedEnqueueRequestForObject[*v1alpha1.Machine]{},
			predicate.NewTypedPredicateFuncs(c.tells))).
		// Core writes all conditions of a NodeClaim at once, without looking: ours may get lost.
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(c.machineOf), builder.WithPredicates(predicate.Funcs{
			UpdateFunc:  func(e event.UpdateEvent) bool { return told(e.ObjectOld) != told(e.ObjectNew) },
			DeleteFunc:  func(event.DeleteEvent) bool { return false },
			GenericFunc: func(event.GenericEvent) bool { return false },
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentReconciles}).
		Complete(reconcile.AsReconciler(c.planes.Management.Client, c))
}

// told is what decides whether a NodeClaim is to be told of its Machine again.
func told(object client.Object) (what struct {
	providerID string
	condition  metav1.Condition
}) {
	if nodeClaim, ok := object.(*karpv1.NodeClaim); ok {
		what.providerID, what.condition = nodeClaim.Status.ProviderID, conditionOf(nodeClaim)
	}
	return what
}

// machineOf maps a NodeClaim to its Machine, which has its name.
func (c *Controller) machineOf(_ context.Context, nodeClaim client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: c.planes.TenantCluster.Namespace, Name: nodeClaim.GetName()}}}
}
