// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dra syncs the objects of Dynamic Resource Allocation between the host, which is the management cluster, and a
// tenant whose pods run on the host's nodes. The device classes that the tenant may ask for flow to it, its claims and
// templates flow to the host, and the status of the claims flows back.
//
// The packages below: policy, which classes a tenant may ask for; names, the names and annotations on the host;
// classes, the controller of DeviceClasses; claims, the controllers of ResourceClaims and ResourceClaimTemplates.
//
// config/rbac has the rights that they need in both clusters.
package dra

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	"golang.org/x/sync/errgroup"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/identity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/classes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Controllers returns the controllers for a tenant: a controller that starts the others when the TenantCluster enables
// the sync. Until then they watch nothing, so a tenant without Dynamic Resource Allocation costs nothing and need not
// serve it. The recorder writes to the tenant cluster. The scheme of both clusters must have resource.k8s.io/v1,
// core/v1 and our own kinds. The controllers add the indexes that they need, and the given others start with them.
func Controllers(clusters tenant.Clusters, clk clock.PassiveClock, recorder events.Recorder,
	others ...controller.Controller) []controller.Controller {
	return []controller.Controller{NewController(clk, clusters, append([]controller.Controller{
		classes.NewController(clusters, recorder),
		claims.NewClaimController(clusters, clk, recorder),
		claims.NewTemplateController(clusters, clk, recorder),
		claims.NewGeneratedController(clusters, recorder),
	}, others...)...)}
}

// precondition is the next condition of the TenantCluster.
type precondition struct {
	reason, message string
	// canRun is true if the controllers can run, regardless of the settings.
	canRun bool
}

// check computes whether the sync can run, and whether anything is enabled.
func (c *Controller) check(ctx context.Context, cluster *v1alpha1.TenantCluster) (precondition, error) {
	if err := names.CheckTenant(cluster.Name); err != nil {
		return precondition{reason: v1alpha1.ReasonInvalidName, message: sentence(err.Error())}, nil
	}
	for _, cluster := range []struct {
		name   string
		client client.Client
	}{{"management cluster", c.clusters.Management.Client}, {"tenant cluster", c.clusters.Tenant.Client}} {
		missing, err := notServed(cluster.client)
		if err != nil {
			return precondition{}, fmt.Errorf("reading which APIs the %s serves, %w", cluster.name, err)
		}
		if missing != "" {
			return precondition{reason: v1alpha1.ReasonAPINotServed, message: fmt.Sprintf(
				"The %s does not serve %s %s: it needs Kubernetes 1.34 or later with that API enabled", cluster.name, resourcev1.SchemeGroupVersion,
				missing)}, nil
		}
	}
	same, err := c.sameCluster(ctx)
	if err != nil {
		return precondition{}, err
	}
	if same {
		return precondition{reason: v1alpha1.ReasonSameCluster,
			message: "The tenant cluster is the management cluster: there is nothing to sync, disable spec.sync"}, nil
	}
	if !cluster.Spec.Sync.Enabled() {
		return precondition{reason: v1alpha1.ReasonSyncDisabled, message: "Nothing is enabled in spec.sync. What has been synced stays",
			canRun: true}, nil
	}
	if s := policy.Of(cluster); s.SelectorError != nil {
		return precondition{reason: v1alpha1.ReasonInvalidSelector, message: sentence(s.SelectorError.Error()), canRun: true}, nil
	}
	result := precondition{reason: v1alpha1.ReasonSynced, message: "In sync: " + strings.Join(enabled(&cluster.Spec.Sync), ", "), canRun: true}
	// The reference of vcluster.yaml: "The resource claims must reference device classes synced from the host".
	// vCluster's own code does not enforce this, and passes on claims of all classes. A platform that forgot the switch
	// would then give all classes away.
	if !cluster.Spec.Sync.FromHost.DeviceClasses.Enabled {
		result.reason = v1alpha1.ReasonNoDeviceClasses
		result.message = "No claim and no template is synced, because no DeviceClass is allowed: " +
			strings.Join(enabled(&cluster.Spec.Sync), ", ") +
			" need the classes, enable spec.sync.fromHost.deviceClasses"
	}
	return result, nil
}

// notServed returns the first kind that a cluster does not serve, or "". Every cluster serves pods. They are checked
// because the controllers watch them: so the mapper still knows them when the API server is away for a moment.
func notServed(c client.Client) (string, error) {
	for _, kind := range []schema.GroupVersionKind{
		resourcev1.SchemeGroupVersion.WithKind("DeviceClass"), names.ClaimKind,
		names.TemplateKind, names.PodKind,
	} {
		_, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return kind.Kind, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

func enabled(sync *v1alpha1.Sync) []string {
	var kinds []string
	if sync.FromHost.DeviceClasses.Enabled {
		kinds = append(kinds, "deviceClasses")
	}
	if sync.ToHost.ResourceClaims.Enabled {
		kinds = append(kinds, "resourceClaims")
	}
	if sync.ToHost.ResourceClaimTemplates.Enabled {
		kinds = append(kinds, "resourceClaimTemplates")
	}
	return kinds
}

// sentence capitalizes the text for the message of a condition.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// servedRetry is how often to check again whether a cluster serves resource.k8s.io/v1.
const servedRetry = time.Minute

// Controller starts the controllers of the sync when the TenantCluster enables it. A condition says whether they work.
type Controller struct {
	clock    clock.PassiveClock
	clusters tenant.Clusters
	pending  []controller.Controller
	manager  managerWithRunnables
	// failure is why a controller could not be registered. It is permanent: the name of that controller is taken, so
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
	// 2. If the sync was ever enabled there are finalizers, which the controllers must be able to remove.
	if result.canRun {
		if err := c.start(ctx); err != nil {
			result.reason, result.message = v1alpha1.ReasonNotStarted, sentence(err.Error()+"; restart the provider")
		}
	}
	if err := c.writeCondition(ctx, cluster, result); apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: kube.ConflictRetry}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if result.reason == v1alpha1.ReasonAPINotServed {
		return reconcile.Result{RequeueAfter: servedRetry}, nil
	}
	return reconcile.Result{}, nil
}

// start registers the controllers that do not run yet. The manager already runs.
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
	if err := kube.PatchStatus(ctx, c.clusters.Management.Client, stored, cluster); err != nil {
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("DRA sync", "reason", result.reason, "message", result.message)
	return nil
}

// sameCluster reports whether the host is the tenant cluster. Then each copy would be copied again.
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

// Register implements Karpenter's controller interface, with the manager of the tenant cluster.
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

// dynamicRunnables is a Runnable that starts other runnables, which are added while it runs. The manager has it from
// the start. Adding a runnable to a manager that is about to stop can block it until its grace period ends: Add holds a
// read lock of controller-runtime's runnable group until the group takes the runnable. The group also needs that lock,
// behind StopAndWait, which waits to write.
type dynamicRunnables chan manager.Runnable

// newDynamicRunnables has room for more runnables than there are controllers, so that adding one never blocks.
func newDynamicRunnables() dynamicRunnables { return make(dynamicRunnables, 100) }

// Start runs the runnables until the context ends or one of them fails. It returns when all of them have returned.
func (d dynamicRunnables) Start(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		select {
		case runnable := <-d:
			group.Go(func() error { return runnable.Start(ctx) })
		case <-ctx.Done():
			return group.Wait()
		}
	}
}

// managerWithRunnables is a manager for controllers that register while it runs.
type managerWithRunnables struct {
	manager.Manager
	runnables dynamicRunnables
}

// Add implements manager.Manager.
func (m managerWithRunnables) Add(runnable manager.Runnable) error {
	m.runnables <- runnable // started now, or once Start is called
	return nil
}
