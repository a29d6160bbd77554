// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpools limits the NodeClaims of static NodePools (spec.replicas) to the servers that are available.
//
// Karpenter's core creates a NodeClaim for each replica that is missing, whether or not there is a server, and another one
// as soon as the first has failed: with no servers left that is a loop at full speed. Here core gets, in memory, a NodePool
// with no more replicas than there are servers, and reconciles it again when servers become free.
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	static "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
)

const (
	// reasonNotEnoughServers: the NodePool has more replicas than servers are available. An event on the NodePool.
	reasonNotEnoughServers = "NotEnoughServers"
	// reasonNoNodeProfile: the nodes of the NodePool cannot have their NodeProfile. An event on the NodePool.
	reasonNoNodeProfile = "NoNodeProfile"

	// batchPeriod is how long changes of NodeTypes are collected before NodePools that wait are reconciled.
	batchPeriod = 200 * time.Millisecond
	// recheckPeriod is how often a NodePool that waits is reconciled without an event.
	recheckPeriod = time.Minute
	repeatPeriod  = 5 * time.Minute
	// countPeriod is how long after its launch a NodeClaim may still be missing from the counts of its NodeType: the manager
	// writes the Machine first, and the counts soon after.
	countPeriod = 5 * time.Second
)

// Core creates the NodeClaims of static NodePools: Karpenter's controller of that name.
type Core interface {
	Reconcile(ctx context.Context, nodePool *karpenterv1.NodePool) (reconcile.Result, error)
}

// Servers counts the servers that NodePools can get.
type Servers interface {
	// FreeFor returns how many more servers a NodePool could get now.
	FreeFor(ctx context.Context, nodePool *karpenterv1.NodePool) (int64, error)
	// RetryAfter returns how long no type that was refused to a NodePool lately is tried again, and zero if none was.
	RetryAfter(nodePool string) time.Duration
}

// Dependencies of the Controller.
type Dependencies struct {
	// Core creates the NodeClaims.
	Core Core
	// Tenant reads NodeClaims, from a cache.
	Tenant client.Reader
	// Nodes returns how many nodes a NodePool has, registered or not, and how many of them are about to be replaced.
	Nodes   func(nodePool string) (running, replaced int)
	Servers Servers
	// Planned returns a NodePool with the NodeProfile of its nodes, and why they cannot have it.
	Planned func(ctx context.Context, nodePool *karpenterv1.NodePool) (planned *karpenterv1.NodePool, problem string, err error)
	// OnChange adds a listener that is called when servers may have become free.
	OnChange func(listener func())
	// CloudProvider selects the NodePools of this provider.
	CloudProvider cloudprovider.CloudProvider
	Recorder      events.Recorder
}

// Controller lets core create the NodeClaims of static NodePools, as many as there are servers.
type Controller struct {
	Dependencies

	mu sync.Mutex
	// waiting are the NodePools with more replicas than servers.
	waiting map[string]bool
}

// NewController returns a controller that replaces core's.
func NewController(dependencies Dependencies) *Controller {
	return &Controller{Dependencies: dependencies, waiting: map[string]bool{}}
}

// Name implements Karpenter's controller interface. It is the name of core's controller.
func (c *Controller) Name() string { return "static.provisioning" }

// Reconcile creates NodeClaims for a NodePool that has too few nodes, if there are servers.
func (c *Controller) Reconcile(ctx context.Context, nodePool *karpenterv1.NodePool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// 1. It is not static, not ready, being deleted, or has enough nodes: core handles that.
	running, replaced := c.Nodes(nodePool.Name)
	nodes := int64(running) + int64(replaced)
	if nodePool.Spec.Replicas == nil || !nodePool.DeletionTimestamp.IsZero() || !nodePool.StatusConditions().Root().IsTrue() ||
		nodes >= *nodePool.Spec.Replicas {
		c.setWaiting(nodePool.Name, false)
		return c.Core.Reconcile(ctx, nodePool)
	}
	// 2. It has too few nodes, and no server is free, or those that looked free were refused.
	free, err := c.Servers.FreeFor(ctx, nodePool)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("counting the servers for NodePool %s, %w", nodePool.Name, err)
	}
	launching, err := c.launching(ctx, nodePool)
	if err != nil {
		return reconcile.Result{}, err
	}
	free = max(0, free-launching)
	missing := *nodePool.Spec.Replicas - nodes
	c.setWaiting(nodePool.Name, free < missing)
	if free < missing {
		c.publishShortage(nodePool, nodes, free)
	}
	if free <= 0 {
		period := recheckPeriod
		if launching > 0 {
			period = countPeriod
		}
		return reconcile.Result{RequeueAfter: min(period, cmp.Or(c.Servers.RetryAfter(nodePool.Name), period))}, nil
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
	// 4. Core creates as many as there are servers. The NodePool that it gets is never written.
	limited := planned.DeepCopy()
	*limited.Spec.Replicas = nodes + min(missing, free)
	return c.Core.Reconcile(ctx, limited)
}

// launching counts the NodeClaims of the NodePool that have no server yet, or have one that may still be counted as free.
func (c *Controller) launching(ctx context.Context, nodePool *karpenterv1.NodePool) (int64, error) {
	nodeClaims := &karpenterv1.NodeClaimList{}
	if err := c.Tenant.List(ctx, nodeClaims, client.MatchingLabels{karpenterv1.NodePoolLabelKey: nodePool.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the NodeClaims of NodePool %s, %w", nodePool.Name, err)
	}
	count := int64(0)
	for i := range nodeClaims.Items {
		nodeClaim := &nodeClaims.Items[i]
		launched := nodeClaim.StatusConditions().Get(karpenterv1.ConditionTypeLaunched)
		counted := launched.IsTrue() && time.Since(launched.LastTransitionTime.Time) > countPeriod
		if !counted && nodeClaim.DeletionTimestamp.IsZero() {
			count++
		}
	}
	return count, nil
}

func (c *Controller) publishShortage(nodePool *karpenterv1.NodePool, nodes, free int64) {
	c.publish(nodePool, reasonNotEnoughServers, fmt.Sprintf("it has %d nodes of the %d that replicas asks for, and %d "+
		"servers that it could have are free%s: the rest follows as servers come back", nodes, *nodePool.Spec.Replicas, free, alsoOf(nodePool)))
}

func (c *Controller) publish(nodePool *karpenterv1.NodePool, reason, message string) {
	warning := tenant.Warning(nodePool, reason, message)
	warning.DedupeTimeout = repeatPeriod
	c.Recorder.Publish(warning)
}

// alsoOf names the NodeTypes that the servers of a NodePool must match besides the one that they are of.
func alsoOf(nodePool *karpenterv1.NodePool) string {
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

// requeueWaiting reconciles all NodePools that wait.
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
		For(&karpenterv1.NodePool{},
			builder.WithPredicates(nodepoolutils.IsManagedPredicateFuncs(c.CloudProvider), nodepoolutils.IsStaticPredicateFuncs(),
				predicate.Funcs{
					UpdateFunc: func(e event.UpdateEvent) bool {
						before, ok := e.ObjectOld.(*karpenterv1.NodePool)
						after, ok2 := e.ObjectNew.(*karpenterv1.NodePool)
						return ok && ok2 && (before.Generation != after.Generation || static.HasNodePoolReplicaOrStatusChanged(before, after))
					},
					DeleteFunc: func(e event.DeleteEvent) bool {
						c.setWaiting(e.Object.GetName(), false)
						return false
					},
					GenericFunc: never,
				})).
		Watches(&karpenterv1.NodeClaim{},
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
