// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpools limits the NodeClaims of static NodePools (spec.replicas) to the servers that are available.
//
// Karpenter's core creates a NodeClaim for each missing replica, whether or not there is a server, and another one as
// soon as the first has failed. With no servers left this is a loop at full speed. Here core gets, in memory, a
// NodePool with no more replicas than there are servers, and reconciles it again when servers become free.
package staticpools

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	static "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// reasonNotEnoughServers: the NodePool has more replicas than available servers. An event on the NodePool.
	reasonNotEnoughServers = "NotEnoughServers"
	// reasonNoNodeProfile: the nodes of the NodePool cannot have their NodeProfile. An event on the NodePool.
	reasonNoNodeProfile = "NoNodeProfile"

	// batchPeriod is how long changes of NodeTypes are collected before the waiting NodePools are reconciled.
	batchPeriod = 200 * time.Millisecond
	// recheckPeriod is how often a waiting NodePool is reconciled without an event.
	recheckPeriod = time.Minute
	repeatPeriod  = 5 * time.Minute
)

// Core creates the NodeClaims of static NodePools. Karpenter's static.provisioning controller implements it.
type Core interface {
	Reconcile(ctx context.Context, nodePool *karpv1.NodePool) (reconcile.Result, error)
}

// Servers counts the servers that NodePools can get.
type Servers interface {
	// FreeFor returns how many more servers a NodePool could get now. retryAfter is when there may be more because a
	// recent refusal expires, zero if there was none.
	FreeFor(ctx context.Context, nodePool *karpv1.NodePool) (free int64, retryAfter time.Duration, err error)
	// PoolQuotaReached returns a message if the tenant's quota leaves the NodePool no server, "" otherwise.
	PoolQuotaReached(ctx context.Context, nodePool *karpv1.NodePool) (string, error)
}

// Dependencies of the Controller.
type Dependencies struct {
	// Core creates the NodeClaims.
	Core Core
	// Nodes returns how many nodes a NodePool has, registered or not, and how many of them are about to be replaced.
	Nodes   func(nodePool string) (running, replaced int)
	Servers Servers
	// Planned returns a NodePool with the NodeProfile of its nodes, and why they cannot have it.
	Planned func(ctx context.Context, nodePool *karpv1.NodePool) (planned *karpv1.NodePool, problem string, err error)
	// OnChange adds a listener that is called when servers may have become free.
	OnChange func(listener func())
	// CloudProvider selects the NodePools of this provider.
	CloudProvider cloudprovider.CloudProvider
	Recorder      events.Recorder
}

// Controller lets core create as many NodeClaims of static NodePools as there are servers.
type Controller struct {
	Dependencies

	// creating is held from counting the servers until core has created the NodeClaims, so that no server counts twice.
	creating sync.Mutex

	mu sync.Mutex
	// waiting are the NodePools with more replicas than servers.
	waiting map[string]bool
}

// NewController returns a controller that replaces core's.
func NewController(dependencies Dependencies) *Controller {
	return &Controller{Dependencies: dependencies, waiting: map[string]bool{}}
}

// Name implements Karpenter's controller interface. It returns the name of core's controller.
func (c *Controller) Name() string { return "static.provisioning" }

// Reconcile creates NodeClaims for a NodePool with too few nodes, if there are servers.
func (c *Controller) Reconcile(ctx context.Context, nodePool *karpv1.NodePool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// 1. The NodePool is not static, not ready, being deleted, or has enough nodes: core handles that.
	running, replaced := c.Nodes(nodePool.Name)
	nodes := int64(running) + int64(replaced)
	if nodePool.Spec.Replicas == nil || !nodePool.DeletionTimestamp.IsZero() || !nodePool.StatusConditions().Root().IsTrue() ||
		nodes >= *nodePool.Spec.Replicas {
		c.setWaiting(nodePool.Name, false)
		return c.Core.Reconcile(ctx, nodePool)
	}
	// 2. It has too few nodes, and no server is free, or the servers that looked free were refused.
	c.creating.Lock()
	defer c.creating.Unlock()
	free, retryAfter, err := c.Servers.FreeFor(ctx, nodePool)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("counting the servers for NodePool %s, %w", nodePool.Name, err)
	}
	missing := *nodePool.Spec.Replicas - nodes
	c.setWaiting(nodePool.Name, free < missing)
	if free < missing {
		if err := c.publishShortage(ctx, nodePool, nodes, free); err != nil {
			return reconcile.Result{}, err
		}
	}
	if free <= 0 {
		return reconcile.Result{RequeueAfter: min(recheckPeriod, cmp.Or(retryAfter, recheckPeriod))}, nil
	}
	// 3. Its nodes cannot have their NodeProfile.
	planned, problem, err := c.Planned(ctx, nodePool)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("finding the NodeProfile of NodePool %s, %w", nodePool.Name, err)
	}
	if problem != "" {
		c.publish(nodePool, reasonNoNodeProfile, problem)
		return reconcile.Result{RequeueAfter: recheckPeriod}, nil
	}
	// 4. Core creates as many NodeClaims as there are servers. The NodePool that it gets is never written.
	limited := planned.DeepCopy()
	*limited.Spec.Replicas = nodes + min(missing, free)
	result, err := c.Core.Reconcile(ctx, limited)
	if err == nil && free < missing {
		result.RequeueAfter = cmp.Or(result.RequeueAfter, retryAfter)
	}
	return result, err
}

func (c *Controller) publishShortage(ctx context.Context, nodePool *karpv1.NodePool, nodes, free int64) error {
	why := fmt.Sprintf(", and %d servers that it could have are free%s: the rest follows as servers come back", free, alsoOf(nodePool))
	if free <= 0 {
		quota, err := c.Servers.PoolQuotaReached(ctx, nodePool)
		if err != nil {
			return fmt.Errorf("comparing NodePool %s with the quota, %w", nodePool.Name, err)
		}
		if quota != "" {
			why = ": " + quota
		}
	}
	c.publish(nodePool, reasonNotEnoughServers, fmt.Sprintf("it has %d nodes of the %d that replicas asks for%s", nodes,
		*nodePool.Spec.Replicas, why))
	return nil
}

func (c *Controller) publish(nodePool *karpv1.NodePool, reason, message string) {
	warning := tenant.Warning(nodePool, reason, message)
	warning.DedupeTimeout = repeatPeriod
	c.Recorder.Publish(warning)
}

// alsoOf names the NodeTypes that the servers of a NodePool must match in addition to their own type.
func alsoOf(nodePool *karpv1.NodePool) string {
	var names []string
	for _, requirement := range nodePool.Spec.Template.Spec.Requirements {
		if name, found := strings.CutPrefix(requirement.Key, v1alpha1.TypeLabelPrefix+"/"); found {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (they must match NodeType " + strings.Join(names, " and ") + " as well)"
}

func (c *Controller) setWaiting(nodePool string, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits {
		c.waiting[nodePool] = true
	} else {
		delete(c.waiting, nodePool)
	}
}

func (c *Controller) requeueWaiting(queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.waiting {
		queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, batchPeriod)
	}
}

// Register implements Karpenter's controller interface. It watches what core's controller watches, and the catalog.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	never := func(event.GenericEvent) bool { return false }
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpv1.NodePool{},
			builder.WithPredicates(nodepoolutils.IsManagedPredicateFuncs(c.CloudProvider), nodepoolutils.IsStaticPredicateFuncs(),
				predicate.Funcs{
					UpdateFunc: func(e event.UpdateEvent) bool {
						before, ok := e.ObjectOld.(*karpv1.NodePool)
						after, ok2 := e.ObjectNew.(*karpv1.NodePool)
						return ok && ok2 && (before.Generation != after.Generation || static.HasNodePoolReplicaOrStatusChanged(before, after))
					},
					DeleteFunc: func(e event.DeleteEvent) bool {
						c.setWaiting(e.Object.GetName(), false)
						return false
					},
					GenericFunc: never,
				})).
		Watches(&karpv1.NodeClaim{},
			nodepoolutils.NodeClaimEventHandler(nodepoolutils.WithClient(m.GetClient()), nodepoolutils.WithStaticOnly),
			builder.WithPredicates(predicate.Funcs{
				CreateFunc: func(event.CreateEvent) bool { return false },
				UpdateFunc: func(e event.UpdateEvent) bool {
					return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
				},
				GenericFunc: never,
			})).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			c.OnChange(func() { c.requeueWaiting(queue) })
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
