// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package protection

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/util/workqueue"
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

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// conflictRetry is when to look again after somebody else has written first.
	conflictRetry = time.Second
	// resync is how often everything is compared although nothing has happened.
	resync = 10 * time.Minute
	// cacheSyncTimeout is how long the first answer of an API may take. The process must not end because of it: it has
	// other things to do than this.
	cacheSyncTimeout = 24 * time.Hour
)

// Controller keeps policies in the tenant.
type Controller struct {
	name    string
	planes  tenant.Planes
	trusted []string
	// classes tells that it is about device classes, and so about the TenantCluster's sync block.
	classes bool
}

// NewPoolController returns the controller that protects generated pools. The provider's own user may write them, and so
// may those who are trusted beside it.
func NewPoolController(planes tenant.Planes, trusted []string) *Controller {
	return &Controller{name: "tenant.protection.pools", planes: planes, trusted: trusted}
}

// NewDeviceClassController returns the controller that protects DeviceClasses, while they are in sync, and warns of
// claims for others. It is to be started once the sync is.
func NewDeviceClassController(planes tenant.Planes, trusted []string) *Controller {
	return &Controller{name: "tenant.protection.deviceclasses", planes: planes, trusted: trusted, classes: true}
}

// Reconcile compares everything. There is one request, for the tenant.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	user, err := self(ctx, c.planes.Tenant.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	users := append(slices.Clone(c.trusted), user)
	if c.classes {
		return c.reconcileClasses(ctx, users)
	}
	if err := put(ctx, c.planes.Tenant.Client, poolsPolicy(c.planes.TenantCluster, users)); err != nil {
		return written(err)
	}
	return reconcile.Result{RequeueAfter: resync}, nil
}

// reconcileClasses protects DeviceClasses while they are in sync, and not otherwise.
func (c *Controller) reconcileClasses(ctx context.Context, users []string) (reconcile.Result, error) {
	decided, err := settings.Read(ctx, c.planes.Management.Client, c.planes.TenantCluster)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("protecting DeviceClasses, %w", err)
	}
	if !decided.Sync.FromHost.DeviceClasses.Enabled {
		return written(remove(ctx, c.planes.Tenant.Client, DeviceClassesPolicy), remove(ctx, c.planes.Tenant.Client, ResourceClaimsPolicy))
	}
	classes := &resourcev1.DeviceClassList{}
	if err := c.planes.Tenant.Client.List(ctx, classes, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing DeviceClasses, %w", err)
	}
	names := make([]string, len(classes.Items))
	for i := range classes.Items {
		names[i] = classes.Items[i].Name
	}
	slices.Sort(names)
	if _, err := written(put(ctx, c.planes.Tenant.Client, deviceClassesPolicy(users)), put(ctx, c.planes.Tenant.Client, resourceClaimsPolicy(names))); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: resync}, nil
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return c.name }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	request := []reconcile.Request{{NamespacedName: c.planes.TenantCluster}}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return request })
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
		return slices.Contains(c.policies(), object.GetName())
	}), predicate.GenerationChangedPredicate{})
	started := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(request[0])
		return nil
	})
	build := controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(started).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicy{}, enqueue, ours).
		Watches(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, enqueue, ours).
		WithOptions(controller.Options{CacheSyncTimeout: cacheSyncTimeout})
	if c.classes {
		comesAndGoes := predicate.TypedFuncs[*resourcev1.DeviceClass]{UpdateFunc: func(event.TypedUpdateEvent[*resourcev1.DeviceClass]) bool { return false }}
		build = build.
			WatchesRawSource(settings.Changes(c.planes, func(context.Context) []reconcile.Request { return request })).
			WatchesRawSource(source.Kind(c.planes.Tenant.Cache, &resourcev1.DeviceClass{},
				handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *resourcev1.DeviceClass) []reconcile.Request { return request }), comesAndGoes))
	}
	if err := build.Complete(c); err != nil {
		return fmt.Errorf("starting controller %s, %w", c.Name(), err)
	}
	return nil
}

// policies are the names of those that the controller keeps.
func (c *Controller) policies() []string {
	if c.classes {
		return []string{DeviceClassesPolicy, ResourceClaimsPolicy}
	}
	return []string{PoolsPolicy(c.planes.TenantCluster)}
}
