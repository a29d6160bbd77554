// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpools

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
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
)

const (
	// reasonNotEnoughServers: the pool wants more nodes than there are servers for. An event on the NodePool.
	reasonNotEnoughServers = "NotEnoughServers"

	// settlePeriod is how long changes of NodeTypes are collected before pools that wait are looked at.
	settlePeriod = 200 * time.Millisecond
	// recheckPeriod is how soon a pool that waits is looked at again if nothing has woken it.
	recheckPeriod = time.Minute
	repeatPeriod  = 5 * time.Minute
)

// Core is what makes the NodeClaims of static pools: Karpenter's controller of that name.
type Core interface {
	Reconcile(ctx context.Context, nodePool *karpenterv1.NodePool) (reconcile.Result, error)
}

// Servers are those that pools can have.
type Servers interface {
	// FreeFor is how many more servers a pool could have now.
	FreeFor(ctx context.Context, nodePool *karpenterv1.NodePool) (int64, error)
}

// Dependencies of the Controller.
type Dependencies struct {
	// Core makes the NodeClaims.
	Core Core
	// Tenant reads NodeClaims, from a cache.
	Tenant client.Reader
	// Nodes returns how many nodes a pool has, booted or on the way, and how many of them are about to be replaced.
	Nodes func(nodePool string) (running, replaced int)
	// Servers are those that there are.
	Servers Servers
	// OnChange adds a listener that is called whenever servers may have come back.
	OnChange func(listener func())
	// CloudProvider tells which NodePools are ours.
	CloudProvider cloudprovider.CloudProvider
	Recorder      events.Recorder
	Clock         clock.PassiveClock
}

// Controller has core make the NodeClaims of static pools, as many as there are servers for.
type Controller struct {
	Dependencies
	brake brake

	mu sync.Mutex
	// waiting are the pools that want more than there is.
	waiting map[string]bool
}

// NewController returns a controller that takes the place of core's.
func NewController(dependencies Dependencies) *Controller {
	return &Controller{Dependencies: dependencies, waiting: map[string]bool{}}
}

// Name implements Karpenter's controller interface. It is that of core's controller, whose place this takes.
func (c *Controller) Name() string { return "static.provisioning" }

// Reconcile makes NodeClaims for one pool, if it has too few and there are servers.
func (c *Controller) Reconcile(ctx context.Context, nodePool *karpenterv1.NodePool) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	// 1. Not a static pool, or one that is not ready, or goes, or has what it wants: core knows what to do.
	running, replaced := c.Nodes(nodePool.Name)
	there := int64(running) + int64(replaced)
	if nodePool.Spec.Replicas == nil || !nodePool.DeletionTimestamp.IsZero() || !nodePool.StatusConditions().Root().IsTrue() || there >= *nodePool.Spec.Replicas {
		c.wait(nodePool.Name, false)
		return c.Core.Reconcile(ctx, nodePool)
	}
	// 2. It has too few, and there is nothing to make more of.
	free, err := c.Servers.FreeFor(ctx, nodePool)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("counting the servers for NodePool %s, %w", nodePool.Name, err)
	}
	launching, err := c.launching(ctx, nodePool)
	if err != nil {
		return reconcile.Result{}, err
	}
	free = max(0, free-launching)
	missing := *nodePool.Spec.Replicas - there
	c.wait(nodePool.Name, free < missing)
	if free < missing {
		c.tell(nodePool, there, free)
	}
	if free <= 0 {
		return reconcile.Result{RequeueAfter: recheckPeriod}, nil
	}
	// 3. There is, but not long ago it turned out otherwise.
	if delay := c.brake.wait(nodePool.Name, c.Clock.Now()); delay > 0 {
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	// 4. Core makes as many as there are servers for. The pool that it is shown is never written.
	shown := nodePool.DeepCopy()
	*shown.Spec.Replicas = there + min(missing, free)
	return c.Core.Reconcile(ctx, shown)
}

// launching counts the NodeClaims of the pool that have no server yet: each will take one of those that are free.
func (c *Controller) launching(ctx context.Context, nodePool *karpenterv1.NodePool) (int64, error) {
	nodeClaims := &karpenterv1.NodeClaimList{}
	if err := c.Tenant.List(ctx, nodeClaims, client.MatchingLabels{karpenterv1.NodePoolLabelKey: nodePool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the NodeClaims of NodePool %s, %w", nodePool.Name, err)
	}
	count := int64(0)
	for i := range nodeClaims.Items {
		if nodeClaims.Items[i].Status.ProviderID == "" && nodeClaims.Items[i].DeletionTimestamp.IsZero() {
			count++
		}
	}
	return count, nil
}

func (c *Controller) tell(nodePool *karpenterv1.NodePool, there, free int64) {
	message := fmt.Sprintf("it has %d nodes of the %d that replicas asks for, and %d servers that it could have are free: the rest follows as servers come back",
		there, *nodePool.Spec.Replicas, free)
	c.Recorder.Publish(events.Event{
		InvolvedObject: nodePool,
		Type:           corev1.EventTypeWarning,
		Reason:         reasonNotEnoughServers,
		Message:        message,
		DedupeValues:   []string{string(nodePool.UID), message},
		DedupeTimeout:  repeatPeriod,
	})
}

func (c *Controller) wait(nodePool string, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits {
		c.waiting[nodePool] = true
	} else {
		delete(c.waiting, nodePool)
	}
}

// wake looks at all pools that wait.
func (c *Controller) wake(queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.waiting {
		queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, settlePeriod)
	}
}

// Register implements Karpenter's controller interface. It watches what core's controller watches, and servers.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	never := func(event.GenericEvent) bool { return false }
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		For(&karpenterv1.NodePool{}, builder.WithPredicates(nodepoolutils.IsManagedPredicateFuncs(c.CloudProvider), nodepoolutils.IsStaticPredicateFuncs(),
			predicate.Funcs{
				UpdateFunc: func(e event.UpdateEvent) bool {
					before, ok := e.ObjectOld.(*karpenterv1.NodePool)
					after, ok2 := e.ObjectNew.(*karpenterv1.NodePool)
					return ok && ok2 && (before.Generation != after.Generation || static.HasNodePoolReplicaOrStatusChanged(before, after))
				},
				DeleteFunc: func(e event.DeleteEvent) bool {
					c.wait(e.Object.GetName(), false)
					c.brake.forget(e.Object.GetName())
					return false
				},
				GenericFunc: never,
			})).
		Watches(&karpenterv1.NodeClaim{}, nodepoolutils.NodeClaimEventHandler(nodepoolutils.WithClient(m.GetClient()), nodepoolutils.WithStaticOnly), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
			},
			GenericFunc: never,
		})).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			c.OnChange(func() { c.wake(queue) })
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(reconcile.AsReconciler(m.GetClient(), c))
}
