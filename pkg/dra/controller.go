// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	corev1 "k8s.io/api/core/v1"
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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// servedRetry is how often to look whether a cluster that had no resource.k8s.io/v1 has it now.
	servedRetry = time.Minute
)

// Controller decides from the TenantCluster whether the sync runs, starts it, and says so in a condition.
type Controller struct {
	clock   clock.PassiveClock
	planes  tenant.Planes
	waiting []controller.Controller
	manager lateManager
	// failure is why a controller could not be started. It stays: registering it again would fail, its name is taken.
	failure error
}

// NewController constructs the controller that starts the others.
func NewController(clk clock.PassiveClock, planes tenant.Planes, others ...controller.Controller) *Controller {
	return &Controller{clock: clk, planes: planes, waiting: others, manager: lateManager{latecomers: newLatecomers()}}
}

// Reconcile looks at the TenantCluster.
func (c *Controller) Reconcile(ctx context.Context, cluster *v1alpha1.TenantCluster) (reconcile.Result, error) {
	ctx = injection.WithControllerName(ctx, c.Name())
	present := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDRASynced)
	// 1. It has never been enabled.
	if !cluster.Spec.Sync.Enabled() && present == nil {
		return reconcile.Result{}, nil
	}
	finding, err := c.examine(ctx, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	// 2. What was enabled once has left finalizers, so the controllers run on to take them away.
	if finding.canRun {
		if err := c.start(ctx); err != nil {
			finding.reason, finding.message = v1alpha1.ReasonNotStarted, sentence(err.Error()+"; restart the provider")
		}
	}
	if err := c.say(ctx, cluster, finding); apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: tenant.ConflictRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if finding.reason == v1alpha1.ReasonAPINotServed {
		return reconcile.Result{RequeueAfter: servedRetry}, nil
	}
	return reconcile.Result{}, nil
}

// start registers the controllers that do not run yet with the manager, which runs already.
func (c *Controller) start(ctx context.Context) error {
	for len(c.waiting) > 0 && c.failure == nil {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		if err := next.Register(ctx, c.manager); err != nil {
			c.failure = fmt.Errorf("starting a controller, %w", err)
		}
	}
	return c.failure
}

// say writes the condition, if it says anything new.
func (c *Controller) say(ctx context.Context, cluster *v1alpha1.TenantCluster, finding finding) error {
	stored := cluster.DeepCopy()
	status := metav1.ConditionFalse
	if finding.reason == v1alpha1.ReasonSynced {
		status = metav1.ConditionTrue
	}
	if !meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionDRASynced, Status: status, Reason: finding.reason, Message: finding.message,
		ObservedGeneration: cluster.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}) {
		return nil
	}
	if err := c.planes.Management.Client.Status().Patch(ctx, cluster,
		client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status of TenantCluster %s, %w", c.planes.TenantCluster, err))
	}
	log.FromContext(ctx).Info("DRA sync", "reason", finding.reason, "message", finding.message)
	return nil
}

// sameCluster tells whether the host is the tenant. Everything would be copied to where it is, and again from there.
func (c *Controller) sameCluster(ctx context.Context) (bool, error) {
	var uids []string
	for _, plane := range []struct {
		name string
		live client.Reader
	}{{"host", c.planes.Management.Live}, {"tenant", c.planes.Tenant.Live}} {
		namespace := &corev1.Namespace{}
		if err := plane.live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
			return false, fmt.Errorf("reading namespace %s of the %s, %w", metav1.NamespaceSystem, plane.name, err)
		}
		uids = append(uids, string(namespace.UID))
	}
	return uids[0] == uids[1], nil
}

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return "dra" }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	c.manager.Manager = m
	if err := m.Add(c.manager.latecomers); err != nil {
		return fmt.Errorf("adding the controllers that start later, %w", err)
	}
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.planes.Management.Cache, &v1alpha1.TenantCluster{},
			&handler.TypedEnqueueRequestForObject[*v1alpha1.TenantCluster]{},
			predicate.NewTypedPredicateFuncs(func(cluster *v1alpha1.TenantCluster) bool {
				return client.ObjectKeyFromObject(cluster) == c.planes.TenantCluster
			}), predicate.TypedGenerationChangedPredicate[*v1alpha1.TenantCluster]{})).
		Complete(reconcile.AsReconciler(c.planes.Management.Client, c))
}
