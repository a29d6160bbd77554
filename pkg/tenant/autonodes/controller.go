// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// problemPeriod is how often a pool that could not be made is tried again: what is missing may be a label of a
	// server, of which no watch tells.
	problemPeriod = 30 * time.Second
	// resync is how often everything is compared although nothing has happened.
	resync = 10 * time.Minute
)

// Catalog knows which labels NodeTypes have. *instancetypes.Catalog is the one.
type Catalog interface {
	// Advertises tells whether some NodeType has a label of that key.
	Advertises(key string) bool
}

// Servers tells whether the catalog is filled. *cloudprovider.Management is the one.
type Servers interface {
	// Synced returns an error as long as the catalog does not hold every NodeType.
	Synced() error
}

// Controller keeps the NodePools and MetalNodeClasses of one tenant as its TenantCluster says.
type Controller struct {
	clock        clock.Clock
	planes       tenant.Planes
	catalog      Catalog
	servers      Servers
	capacityType string
}

// NewController constructs an autonodes controller. capacityType is that of all servers.
func NewController(clk clock.Clock, planes tenant.Planes, catalog Catalog, servers Servers, capacityType string) *Controller {
	return &Controller{clock: clk, planes: planes, catalog: catalog, servers: servers, capacityType: capacityType}
}

// Reconcile compares everything. There is one request, for the tenant.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	if err := c.servers.Synced(); err != nil {
		return reconcile.Result{RequeueAfter: tenant.ConflictRetry}, nil
	}
	// Read live: pools are deleted on its word, and with them servers.
	cluster := &v1alpha1.TenantCluster{}
	err := c.planes.Management.Live.Get(ctx, c.planes.TenantCluster, cluster)
	if tenant.IsGone(err) {
		// Nobody has said that the pools are to go: it may have been moved, or lost and about to be restored. Without
		// it no server is claimed for them anyway.
		log.FromContext(ctx).Info("the TenantCluster does not exist: pools are left as they are", "TenantCluster", c.planes.TenantCluster)
		return reconcile.Result{RequeueAfter: resync}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading TenantCluster %s, %w", c.planes.TenantCluster, err)
	}
	pools := poolsOf(cluster, fleet{capacityType: c.capacityType, advertises: c.catalog.Advertises})
	outcome := c.apply(ctx, pools)
	outcome.errs = append(outcome.errs, c.prune(ctx, pools))
	if err := c.report(ctx, cluster, outcome); err != nil {
		outcome.errs = append(outcome.errs, err)
	}
	if err := errors.Join(outcome.errs...); err != nil {
		return reconcile.Result{}, err
	}
	if outcome.conflict {
		return reconcile.Result{RequeueAfter: tenant.ConflictRetry}, nil
	}
	if len(outcome.problems) > 0 {
		return reconcile.Result{RequeueAfter: problemPeriod}, nil
	}
	return reconcile.Result{RequeueAfter: resync}, nil
}

// apply writes every pool that can be made. One that cannot leaves the others alone, and what there is of it too.
func (c *Controller) apply(ctx context.Context, pools []pool) outcome {
	result := outcome{}
	for i := range pools {
		p := &pools[i]
		if p.problem != "" {
			result.problems = append(result.problems, p.where+": "+p.problem)
			continue
		}
		result.note(p, c.put(ctx, p))
	}
	return result
}

// prune deletes what carries our mark and is in no pool: NodePools first, since their classes wait for the NodeClaims.
func (c *Controller) prune(ctx context.Context, pools []pool) error {
	wanted := sets.New[string]()
	for i := range pools {
		wanted.Insert(pools[i].name())
	}
	ours := client.MatchingLabels{v1alpha1.TenantPoolLabelKey: Mark(c.planes.TenantCluster)}
	nodePools, nodeClasses := &karpv1.NodePoolList{}, &v1alpha1.MetalNodeClassList{}
	if err := c.planes.Tenant.Client.List(ctx, nodePools, ours); err != nil {
		return fmt.Errorf("listing NodePools, %w", err)
	}
	if err := c.planes.Tenant.Client.List(ctx, nodeClasses, ours); err != nil {
		return fmt.Errorf("listing MetalNodeClasses, %w", err)
	}
	var objects []client.Object
	for i := range nodePools.Items {
		objects = append(objects, &nodePools.Items[i])
	}
	for i := range nodeClasses.Items {
		objects = append(objects, &nodeClasses.Items[i])
	}
	var errs []error
	for _, object := range objects {
		if !wanted.Has(object.GetName()) && object.GetDeletionTimestamp().IsZero() {
			errs = append(errs, c.remove(ctx, object))
		}
	}
	return errors.Join(errs...)
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string {
	return "tenant.autonodes"
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	request := []reconcile.Request{{NamespacedName: c.planes.TenantCluster}}
	// The status of NodePools changes all the time; edits change the generation or the label by which we know ours.
	edits := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return request })
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		Watches(&karpv1.NodePool{}, enqueue, edits).
		Watches(&v1alpha1.MetalNodeClass{}, enqueue, edits).
		WatchesRawSource(source.Kind(c.planes.Management.Cache, &v1alpha1.TenantCluster{},
			handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, cluster *v1alpha1.TenantCluster) []reconcile.Request {
				if client.ObjectKeyFromObject(cluster) != c.planes.TenantCluster {
					return nil
				}
				return request
			}), predicate.TypedGenerationChangedPredicate[*v1alpha1.TenantCluster]{})).
		WatchesRawSource(source.Kind(c.planes.Management.Cache, &v1alpha1.NodeType{},
			handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *v1alpha1.NodeType) []reconcile.Request { return request }),
			predicate.TypedGenerationChangedPredicate[*v1alpha1.NodeType]{})).
		Complete(c)
}
