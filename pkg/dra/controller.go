// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/identity"
)

// servedRetry is how often to look whether a cluster that did not serve resource.k8s.io/v1 serves it now.
const servedRetry = time.Minute

// Controller starts the controllers of the sync when the TenantCluster enables it, and records in a condition whether they
// work.
type Controller struct {
	clock    clock.PassiveClock
	clusters tenant.Clusters
	pending  []controller.Controller
	manager  managerWithRunnables
	// failure is why a controller could not be registered. It is kept: the name of that controller is taken, so that
	// registering it again would fail.
	failure error
}

// NewController constructs the controller that starts the others.
func NewController(clk clock.PassiveClock, clusters tenant.Clusters, others ...controller.Controller) *Controller {
	return &Controller{clock: clk, clusters: clusters, pending: others, manager: managerWithRunnables{runnables: newDynamicRunnables()}}
}

// Reconcile checks the preconditions of the sync, starts it, and writes the condition.
func (c *Controller) Reconcile(ctx context.Context, cluster *v1alpha1.TenantCluster) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	present := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDRASynced)
	// 1. It has never been enabled.
	if !cluster.Spec.Sync.Enabled() && present == nil {
		return reconcile.Result{}, nil
	}
	result, err := c.check(ctx, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	// 2. If it was enabled once there are finalizers, which the controllers must be able to remove.
	if result.canRun {
		if err := c.start(ctx); err != nil {
			result.reason, result.message = v1alpha1.ReasonNotStarted, sentence(err.Error()+"; restart the provider")
		}
	}
	if err := c.writeCondition(ctx, cluster, result); apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: controllers.ConflictRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if result.reason == v1alpha1.ReasonAPINotServed {
		return reconcile.Result{RequeueAfter: servedRetry}, nil
	}
	return reconcile.Result{}, nil
}

// start registers the controllers that do not run yet. The manager runs already.
func (c *Controller) start(ctx context.Context) error {
	for len(c.pending) > 0 && c.failure == nil {
		next := c.pending[0]
		c.pending = c.pending[1:]
		if err := next.Register(ctx, c.manager); err != nil {
			c.failure = fmt.Errorf("starting a controller, %w", err)
		}
	}
	return c.failure
}

// writeCondition writes the condition, if it has changed.
func (c *Controller) writeCondition(ctx context.Context, cluster *v1alpha1.TenantCluster, result precondition) error {
	stored := cluster.DeepCopy()
	status := metav1.ConditionFalse
	if result.reason == v1alpha1.ReasonSynced {
		status = metav1.ConditionTrue
	}
	if !meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionDRASynced, Status: status, Reason: result.reason, Message: result.message,
		ObservedGeneration: cluster.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}) {
		return nil
	}
	if err := controllers.PatchStatus(ctx, c.clusters.Management.Client, stored, cluster); err != nil {
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("DRA sync", "reason", result.reason, "message", result.message)
	return nil
}

// sameCluster returns whether the host is the tenant cluster. Each copy would be copied again.
func (c *Controller) sameCluster(ctx context.Context) (bool, error) {
	host, err := identity.UID(ctx, c.clusters.Management.Live)
	if err != nil {
		return false, fmt.Errorf("identifying the host, %w", err)
	}
	tenant, err := identity.UID(ctx, c.clusters.Tenant.Live)
	if err != nil {
		return false, fmt.Errorf("identifying the tenant cluster, %w", err)
	}
	return host == tenant, nil
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return "dra" }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	c.manager.Manager = m
	if err := m.Add(c.manager.runnables); err != nil {
		return fmt.Errorf("adding the runnable for controllers that start later, %w", err)
	}
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.clusters.Management.Cache, &v1alpha1.TenantCluster{},
			&handler.TypedEnqueueRequestForObject[*v1alpha1.TenantCluster]{},
			predicate.NewTypedPredicateFuncs(func(cluster *v1alpha1.TenantCluster) bool {
				return client.ObjectKeyFromObject(cluster) == c.clusters.TenantCluster
			}), predicate.TypedGenerationChangedPredicate[*v1alpha1.TenantCluster]{})).
		Complete(reconcile.AsReconciler(c.clusters.Management.Client, c))
}

// dynamicRunnables is a Runnable that starts others which are added while it runs. The manager has it from its start:
// adding a runnable to a manager that is about to stop can block it until its grace period ends, because Add holds a read
// lock of controller-runtime's runnable group until the group takes the runnable, and the group needs that lock, too, behind
// StopAndWait, which waits to write.
type dynamicRunnables struct {
	mu    sync.Mutex
	queue []manager.Runnable
	added chan struct{}
}

func newDynamicRunnables() *dynamicRunnables {
	return &dynamicRunnables{added: make(chan struct{}, 1)}
}

// add starts the runnable, now or once Start is called.
func (d *dynamicRunnables) add(runnable manager.Runnable) {
	d.mu.Lock()
	d.queue = append(d.queue, runnable)
	d.mu.Unlock()
	select {
	case d.added <- struct{}{}:
	default:
	}
}

func (d *dynamicRunnables) take() []manager.Runnable {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.queue
	d.queue = nil
	return taken
}

// Start runs them until the context ends or one of them fails, and returns when all of them have returned.
func (d *dynamicRunnables) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		for _, runnable := range d.take() {
			group.Go(func() error { return runnable.Start(ctx) })
		}
		select {
		case <-d.added:
		case <-ctx.Done():
			return group.Wait()
		}
	}
}

// managerWithRunnables is a manager for controllers that register while it runs.
type managerWithRunnables struct {
	manager.Manager
	runnables *dynamicRunnables
}

// Add implements manager.Manager.
func (m managerWithRunnables) Add(runnable manager.Runnable) error {
	m.runnables.add(runnable)
	return nil
}
