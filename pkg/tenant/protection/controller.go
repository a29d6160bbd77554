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
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
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
	return c.reconcilePools(ctx, users)
}

// reconcilePools protects generated pools, and says what other pools can require.
func (c *Controller) reconcilePools(ctx context.Context, users []string) (reconcile.Result, error) {
	key, cluster, nodeTypes := c.planes.TenantCluster, &v1alpha1.TenantCluster{}, &v1alpha1.NodeTypeList{}
	policies := []policy{poolsPolicy(key, users)}
	err := c.planes.Management.Client.Get(ctx, key, cluster)
	if err == nil {
		if err := c.planes.Management.Client.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
			return reconcile.Result{}, fmt.Errorf("listing NodeTypes, %w", err)
		}
		there := serversFor(cluster, nodeTypes.Items)
		policies = append(policies, allowedTypesPolicy(key, users, there), requirementsPolicy(key, users, there))
	} else if !tenant.IsGone(err) { // without it, nothing is known of what is allowed
		return reconcile.Result{}, fmt.Errorf("reading TenantCluster %s, %w", key, err)
	}
	var errs []error
	for _, one := range policies {
		errs = append(errs, put(ctx, c.planes.Tenant.Client, one))
	}
	return written(errs...)
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
	return written(put(ctx, c.planes.Tenant.Client, deviceClassesPolicy(users)), put(ctx, c.planes.Tenant.Client, resourceClaimsPolicy(names)))
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return c.name }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(ctx context.Context, m manager.Manager) error {
	served := admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy")
	if _, err := m.GetRESTMapper().RESTMapping(served.GroupKind(), served.Version); meta.IsNoMatchError(err) {
		log.FromContext(ctx).Info("The tenant has no ValidatingAdmissionPolicies, so that its users can change what is made for them; that takes Kubernetes 1.30", "controller", c.Name())
		return nil
	}
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
	if !c.classes {
		// What a tenant may have, and which types and labels there are: the counts in a status say nothing of that.
		build = build.
			WatchesRawSource(source.Kind(c.planes.Management.Cache, &v1alpha1.TenantCluster{},
				handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *v1alpha1.TenantCluster) []reconcile.Request { return request }),
				predicate.TypedGenerationChangedPredicate[*v1alpha1.TenantCluster]{})).
			WatchesRawSource(source.Kind(c.planes.Management.Cache, &v1alpha1.NodeType{},
				handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *v1alpha1.NodeType) []reconcile.Request { return request }),
				predicate.TypedFuncs[*v1alpha1.NodeType]{UpdateFunc: func(e event.TypedUpdateEvent[*v1alpha1.NodeType]) bool {
					return !equality.Semantic.DeepEqual(e.ObjectOld.Status.Requirements, e.ObjectNew.Status.Requirements)
				}}))
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
	key := c.planes.TenantCluster
	return []string{PoolsPolicy(key), AllowedTypesPolicy(key), RequirementsPolicy(key)}
}
