// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenantcluster finalizes TenantClusters: all servers of the tenant are released before it is gone. It decides
// which cluster is the tenant's, sums up the reports of the provider and the Machines in the status, and lists the
// DeviceClasses that the tenant may request. It does not access the tenant cluster, which may be gone.
package tenantcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

const (
	controllerName = "tenantcluster"
	// waitPeriod is the time between two counts of Machines that are being deleted, in case an event was lost.
	waitPeriod = time.Minute
	// providerTimeout is how long a provider has to begin the drain. A start or a change of the leader takes less.
	providerTimeout = 2 * time.Minute
	// reasonNotDrained: Machines of the TenantCluster are deleted although their nodes exist. An event on it.
	reasonNotDrained = "NotDrained"
	// named bounds how many Machines an event names.
	named = 5
)

// Controller identifies the clusters of TenantClusters, sums up their status, and releases the servers of deleted ones.
type Controller struct {
	client   client.Client
	live     client.Reader
	recorder events.EventRecorder
	clock    clock.PassiveClock
	// deletions is when this process first saw that a TenantCluster is being deleted, by UID. A drain is measured from
	// then: the time of the deletion is by the clock of the API server, and this process's clock may be hours off.
	deletions sync.Map
	// renewals are the last renewals of providers, by the UID of the TenantCluster.
	renewals sync.Map
}

// NewController constructs a TenantCluster controller. live reads from the API server, past every cache.
func NewController(writer client.Client, live client.Reader, recorder events.EventRecorder, clk clock.PassiveClock) *Controller {
	return &Controller{client: writer, live: live, recorder: recorder, clock: clk}
}

// Reconcile identifies the cluster of one TenantCluster, and finalizes it.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	tenant := &v1alpha1.TenantCluster{}
	if err := c.client.Get(ctx, request.NamespacedName, tenant); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var result ctrl.Result
	var err error
	switch finalized := controllerutil.ContainsFinalizer(tenant, v1alpha1.TenantClusterFinalizer); {
	// 1. Its deletion must wait for its servers.
	case tenant.DeletionTimestamp.IsZero() && !finalized:
		err = c.setFinalizer(ctx, tenant, controllerutil.AddFinalizer)
	// 2. The provider has reported a cluster.
	case tenant.DeletionTimestamp.IsZero():
		result, err = c.identify(ctx, tenant)
		if left := c.silentIn(tenant); left > 0 && left < never && (result.RequeueAfter == 0 || left < result.RequeueAfter) {
			result.RequeueAfter = left
		}
	// 3. It is being deleted, and its Machines first.
	case finalized:
		result, err = c.deleteMachines(ctx, tenant)
	}
	if err != nil {
		return kube.RetryConflict(err)
	}
	return result, nil
}

// deleteMachines deletes the Machines that are charged to the tenant, and removes the finalizer once there is none.
func (c *Controller) deleteMachines(ctx context.Context, tenant *v1alpha1.TenantCluster) (ctrl.Result, error) {
	// Read live: the cache may lack a Machine that was just created, or have a TenantCluster that is gone.
	machines, tenants := &v1alpha1.MachineList{}, &v1alpha1.TenantClusterList{}
	for _, list := range []client.ObjectList{machines, tenants} {
		if err := c.live.List(ctx, list, client.InNamespace(tenant.Namespace)); err != nil {
			return ctrl.Result{}, fmt.Errorf("listing the Machines of TenantCluster %s, %w", client.ObjectKeyFromObject(tenant), err)
		}
	}
	now := c.clock.Now()
	seen, _ := c.deletions.LoadOrStore(tenant.UID, now)
	until := seen.(time.Time).Add(drainPeriod(tenant))
	// A Machine that is being deleted and has given its server back is held by others, who must not hold the tenant.
	charged, draining := lo.Reject(quota.Charged(tenant.Name, lo.ToSlicePtr(tenants.Items), machines.Items),
		func(machine *v1alpha1.Machine, _ int) bool {
			return !machine.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(machine, v1alpha1.MachineFinalizer)
		}), 0
	var ending []*v1alpha1.Machine
	var undrained []string
	for _, machine := range charged {
		switch {
		case !machine.DeletionTimestamp.IsZero():
		case machine.Labels[v1alpha1.NodeClaimLabelKey] != "" && now.Before(until):
			draining++
		default:
			ending = append(ending, machine)
			if machine.ReportedNode().Name != "" {
				undrained = append(undrained, machine.Name)
			}
		}
	}
	if len(charged) == 0 {
		c.deletions.Delete(tenant.UID)
		return ctrl.Result{}, c.setFinalizer(ctx, tenant, controllerutil.RemoveFinalizer)
	}
	if len(undrained) > 0 {
		c.recorder.Eventf(tenant, nil, corev1.EventTypeWarning, reasonNotDrained, reasonNotDrained,
			"%d servers are released although their nodes are not drained: Machines %s", len(undrained), conditions.List(undrained, named))
	}
	var errs []error
	for _, machine := range ending {
		errs = append(errs, kube.Delete(ctx, c.client, machine, "deleting"))
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	result := ctrl.Result{RequeueAfter: waitPeriod}
	if draining > 0 {
		result.RequeueAfter = min(waitPeriod, until.Sub(now))
	}
	return result, c.writeReturn(ctx, tenant, len(charged), draining, until)
}

// drainPeriod returns how long the tenant's provider has to drain the nodes: 0 if there is no need to wait for it.
func drainPeriod(tenant *v1alpha1.TenantCluster) time.Duration {
	period := tenant.DrainDeadline().Sub(tenant.DeletionTimestamp.Time)
	switch conditions.Find(tenant.Status.Conditions, v1alpha1.ConditionNodesDrained).Status {
	case metav1.ConditionTrue:
		return 0
	case metav1.ConditionFalse:
		return period
	}
	// No provider has begun. Without an identified cluster no provider can.
	if tenant.Status.ClusterUID == "" {
		return 0
	}
	return min(period, providerTimeout)
}

func (c *Controller) setFinalizer(ctx context.Context, tenant *v1alpha1.TenantCluster, set func(client.Object, string) bool) error {
	return client.IgnoreNotFound(kube.Patch(ctx, c.client, tenant, "writing the finalizers of", func() {
		set(tenant, v1alpha1.TenantClusterFinalizer)
	}))
}

// writeReturn writes how many Machines are left, and what they wait for.
func (c *Controller) writeReturn(ctx context.Context, tenant *v1alpha1.TenantCluster, left, draining int, until time.Time) error {
	before := tenant.DeepCopy()
	condition := metav1.Condition{
		Type: v1alpha1.ConditionServersReturned, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReturningServers,
		Message:            fmt.Sprintf("waiting for %d Machines to be deleted", left),
		ObservedGeneration: tenant.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}
	if draining > 0 {
		condition.Reason = v1alpha1.ReasonDraining
		condition.Message += fmt.Sprintf(": %d of them wait until the provider has drained their nodes, and are deleted at %s at the latest",
			draining, until.UTC().Format(time.RFC3339))
	}
	conditions.Set(&tenant.Status.Conditions, condition)
	return c.writeStatus(ctx, before, tenant)
}

func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	createdOrDeleted := kube.Changed(func(object client.Object) bool { return object.GetDeletionTimestamp().IsZero() })
	build := builder.ControllerManagedBy(mgr).
		Named(controllerName).
		For(&v1alpha1.TenantCluster{}, builder.WithPredicates(kube.Changed(withoutRenewal))).
		Watches(&v1alpha1.TenantCluster{}, c.announce()).
		// The TenantClusters of one namespace allow devices together.
		Watches(&v1alpha1.TenantCluster{}, kube.Enqueue(func(ctx context.Context, tenant *v1alpha1.TenantCluster) []reconcile.Request {
			return kube.Requests(ctx, c.client, &v1alpha1.TenantClusterList{}, client.InNamespace(tenant.Namespace))
		}), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// A deleted Machine may be the last one; a new Machine must be deleted as well.
		Watches(&v1alpha1.Machine{}, kube.Enqueue(c.deletedTenantsOf), builder.WithPredicates(createdOrDeleted)).
		Watches(&v1alpha1.Machine{}, enqueueTenant(), builder.WithPredicates(kube.Changed(countedAs)))
	if _, err := mgr.GetRESTMapper().RESTMapping(deviceClassKind.GroupKind(), deviceClassKind.Version); err == nil {
		build.Watches(&resourcev1.DeviceClass{}, kube.Enqueue(func(ctx context.Context, _ *resourcev1.DeviceClass) []reconcile.Request {
			return kube.Requests(ctx, c.client, &v1alpha1.TenantClusterList{})
		}),
			builder.WithPredicates(predicate.Or(createdOrDeleted, predicate.LabelChangedPredicate{})))
	} else if !meta.IsNoMatchError(err) {
		return fmt.Errorf("reading whether the management cluster serves DeviceClasses, %w", err)
	}
	if err := build.Complete(c); err != nil {
		return fmt.Errorf("starting controller %s, %w", controllerName, err)
	}
	return nil
}

// withoutRenewal returns the parts of a TenantCluster that make this controller reconcile when they change. The
// providers of all tenants renew all the time. A renewal matters only if it is the first, which starts the time until
// the next, or if the tenant is not ready and may have lacked the renewal.
func withoutRenewal(tenant *v1alpha1.TenantCluster) *v1alpha1.TenantCluster {
	seen := tenant.DeepCopy()
	seen.ResourceVersion, seen.ManagedFields = "", nil
	if seen.Status.ProviderRenewTime != nil &&
		conditions.Find(seen.Status.Conditions, v1alpha1.ConditionReady).Status == metav1.ConditionTrue {
		seen.Status.ProviderRenewTime = &metav1.Time{}
	}
	return seen
}

// deletedTenantsOf returns the TenantClusters that are being deleted and that a Machine can be charged to: the
// TenantCluster that it names, or any in its namespace.
func (c *Controller) deletedTenantsOf(ctx context.Context, machine *v1alpha1.Machine) []reconcile.Request {
	charged := func(tenant *v1alpha1.TenantCluster) bool {
		ref := machine.Spec.TenantClusterRef
		return !tenant.DeletionTimestamp.IsZero() && (ref == nil || ref.Name == tenant.Name)
	}
	return kube.RequestsWhere(ctx, c.client, &v1alpha1.TenantClusterList{}, kube.Of(charged),
		client.InNamespace(machine.Namespace))
}
