// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclass validates MetalNodeClasses, and finalizes those that no NodeClaim refers to.
package nodeclass

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
)

// validationPeriod is how often a class is validated without an event.
const validationPeriod = 10 * time.Minute

// Controller validates the tenant's MetalNodeClasses.
type Controller struct {
	clock    clock.Clock
	clusters tenant.Clusters
	recorder events.Recorder
}

// NewController constructs a node class controller.
func NewController(clk clock.Clock, clusters tenant.Clusters, recorder events.Recorder) *Controller {
	return &Controller{clock: clk, clusters: clusters, recorder: recorder}
}

// Reconcile validates one class, or finalizes it.
func (c *Controller) Reconcile(ctx context.Context, nodeClass *v1alpha1.MetalNodeClass) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if !nodeClass.DeletionTimestamp.IsZero() {
		return c.finalize(ctx, nodeClass)
	}
	if !controllerutil.ContainsFinalizer(nodeClass, v1alpha1.NodeClassTerminationFinalizer) {
		if err := controllers.Patch(ctx, c.clusters.Tenant.Client, nodeClass, "adding the finalizer to", func() {
			controllerutil.AddFinalizer(nodeClass, v1alpha1.NodeClassTerminationFinalizer)
		}); err != nil {
			return notWritten(err)
		}
	}
	stored := nodeClass.DeepCopy()
	invalid, err := c.validate(ctx, nodeClass)
	if err != nil {
		// The status stays: the class may well be valid.
		return reconcile.Result{}, fmt.Errorf("validating MetalNodeClass %s, %w", nodeClass.Name, err)
	}
	conditions := nodeClass.StatusConditions(status.WithClock(c.clock))
	if invalid == nil {
		conditions.SetTrue(v1alpha1.ConditionValidationSucceeded)
	} else {
		conditions.SetFalse(v1alpha1.ConditionValidationSucceeded, invalid.reason, invalid.message)
	}
	if !equality.Semantic.DeepEqual(stored, nodeClass) {
		if err := controllers.PatchStatus(ctx, c.clusters.Tenant.Client, stored, nodeClass); err != nil {
			return notWritten(err)
		}
	}
	return reconcile.Result{RequeueAfter: validationPeriod}, nil
}

// notWritten is the result of a failed write. A class that is gone needs none.
func notWritten(err error) (reconcile.Result, error) {
	return controllers.RetryConflict(client.IgnoreNotFound(err))
}

// validate reads what the class refers to, and returns why it is not ready, or nil.
func (c *Controller) validate(ctx context.Context, nodeClass *v1alpha1.MetalNodeClass) (*invalid, error) {
	if invalid := validateSpec(nodeClass); invalid != nil || nodeClass.Spec.ProviderRef == nil {
		return invalid, nil
	}
	name := nodeClass.Spec.ProviderRef.Name
	found, err := controllers.Find(ctx, c.clusters.Management.Client, client.ObjectKey{Name: name}, &v1alpha1.NodeProvider{})
	if err != nil {
		return nil, err
	}
	if !found {
		return providerNotFound(name), nil
	}
	types := &v1alpha1.NodeTypeList{}
	if err := c.clusters.Management.Client.List(ctx, types, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeTypes, %w", err)
	}
	return validateTypes(name, types.Items), nil
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return "metalnodeclass" }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&v1alpha1.MetalNodeClass{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&karpv1.NodeClaim{}, handler.EnqueueRequestsFromMapFunc(classOf), builder.WithPredicates(controllers.OnlyDeletions())).
		WatchesRawSource(source.Kind(c.clusters.Management.Cache, &v1alpha1.NodeProvider{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, _ *v1alpha1.NodeProvider) []reconcile.Request {
				return c.allClasses(ctx)
			}), predicate.TypedGenerationChangedPredicate[*v1alpha1.NodeProvider]{})).
		// The status of NodeTypes changes with every claim, and does not matter here.
		WatchesRawSource(source.Kind(c.clusters.Management.Cache, &v1alpha1.NodeType{},
			handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, _ *v1alpha1.NodeType) []reconcile.Request {
				return c.allClasses(ctx)
			}), predicate.TypedGenerationChangedPredicate[*v1alpha1.NodeType]{})).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}

const classKind = "MetalNodeClass"

// refersTo returns whether a NodeClaim refers to the class of that name.
func refersTo(nodeClaim *karpv1.NodeClaim, class string) bool {
	ref := nodeClaim.Spec.NodeClassRef
	return ref != nil && ref.Group == v1alpha1.Group && ref.Kind == classKind && ref.Name == class
}

// classOf maps a NodeClaim to its class.
func classOf(_ context.Context, object client.Object) []reconcile.Request {
	nodeClaim, ok := object.(*karpv1.NodeClaim)
	if !ok || nodeClaim.Spec.NodeClassRef == nil || !refersTo(nodeClaim, nodeClaim.Spec.NodeClassRef.Name) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: nodeClaim.Spec.NodeClassRef.Name}}}
}

// allClasses returns a request for every class of the tenant. There are few of them.
func (c *Controller) allClasses(ctx context.Context) []reconcile.Request {
	return controllers.Requests(ctx, c.clusters.Tenant.Client, &v1alpha1.MetalNodeClassList{})
}
