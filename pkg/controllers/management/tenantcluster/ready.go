// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantcluster

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// batchPeriod is how long changes of Machines are collected before a count: each count writes the TenantCluster.
const batchPeriod = time.Second

const (
	// providerSilence is how long a provider may go without a renewal before it counts as silent. A change of the
	// leader takes 35 seconds, and a rollout of a new version takes less, so neither looks like an outage.
	providerSilence = 3 * time.Minute
	// never is longer than anything waits.
	never time.Duration = math.MaxInt64
)

// writeStatus sums up the status and writes changes. Only the manager writes Ready. The provider writes conditions of
// its own, and each of its writes leads here. Both writes are compare-and-swap, so neither undoes the other.
func (c *Controller) writeStatus(ctx context.Context, before, tenant *v1alpha1.TenantCluster) error {
	machines := &v1alpha1.MachineList{}
	if err := c.client.List(ctx, machines, client.InNamespace(tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("counting the Machines of TenantCluster %s, %w", client.ObjectKeyFromObject(tenant), err)
	}
	tenant.Status.Rollout = rolloutOf(tenant.Name, machines.Items)
	conditions.SetReady(&tenant.Status.Conditions, readyOf(tenant, c.silentIn(tenant) <= 0), tenant.Generation, metav1.NewTime(c.clock.Now()))
	tenant.Status.ObservedGeneration = tenant.Generation
	selected, err := c.allowDevices(ctx, tenant)
	if err != nil || equality.Semantic.DeepEqual(before.Status, tenant.Status) {
		return err
	}
	if err := kube.PatchStatus(ctx, c.client, before, tenant); err != nil {
		return client.IgnoreNotFound(err)
	}
	if selected > v1alpha1.MaxAllowedDevices && !equality.Semantic.DeepEqual(before.Status.AllowedDevices, tenant.Status.AllowedDevices) {
		c.recorder.Eventf(tenant, nil, corev1.EventTypeWarning, reasonTooManyDeviceClasses, reasonTooManyDeviceClasses,
			"spec.sync.fromHost.deviceClasses.selector: the TenantClusters of namespace %s select %d DeviceClasses, and claims there may ask "+
				"for the first %d by name only: select fewer", tenant.Namespace, selected, v1alpha1.MaxAllowedDevices)
	}
	return nil
}

// renewal is the time that a provider has written, and when this process first saw it, by its own clock.
type renewal struct {
	written metav1.Time
	seen    time.Time
}

// silentIn returns in how long the tenant's provider counts as silent without another renewal: 0 or less if it does
// already. The provider's clock may be hours off, so this process only looks for changes of the written time, as leader
// election does. It returns never if no provider has renewed. It also returns never for a TenantCluster that is being
// deleted: its provider has a deadline of its own and may be gone before the servers are back.
func (c *Controller) silentIn(tenant *v1alpha1.TenantCluster) time.Duration {
	if tenant.Status.ProviderRenewTime == nil || !tenant.DeletionTimestamp.IsZero() {
		c.renewals.Delete(tenant.UID)
		return never
	}
	now := c.clock.Now()
	known, found := c.renewals.Load(tenant.UID)
	last, _ := known.(renewal)
	if !last.written.Equal(tenant.Status.ProviderRenewTime) {
		last = renewal{*tenant.Status.ProviderRenewTime, now}
		// A process that starts has not listened yet. It keeps the silence that an earlier process reported.
		if !found && conditions.Find(tenant.Status.Conditions, v1alpha1.ConditionReady).Reason == v1alpha1.ReasonProviderSilent {
			last.seen = now.Add(-providerSilence)
		}
		c.renewals.Store(tenant.UID, last)
	}
	return providerSilence - now.Sub(last.seen)
}

// silence returns the condition for a silent provider.
func silence(tenant *v1alpha1.TenantCluster) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonProviderSilent,
		Message: fmt.Sprintf("the tenant's provider has not been heard of since %s by its clock: it is down, hangs, or does not reach one of "+
			"the two clusters. Pods that wait get no server meanwhile. See that it runs, and its log: %s",
			tenant.Status.ProviderRenewTime.UTC().Format(time.RFC3339),
			shell.Command("kubectl get pods -n %s -l app.kubernetes.io/component=provider", tenant.Namespace))}
}

// readyOf sums up the conditions of a TenantCluster, and whether its provider is silent.
func readyOf(tenant *v1alpha1.TenantCluster, silent bool) metav1.Condition {
	find := func(kind string) metav1.Condition { return conditions.Find(tenant.Status.Conditions, kind) }
	blocked := slices.DeleteFunc(tenant.Blocked(), func(condition metav1.Condition) bool {
		return condition.Type == v1alpha1.ConditionReady // it is made here
	})
	if !tenant.DeletionTimestamp.IsZero() {
		return conditions.Sum(find(v1alpha1.ConditionServersReturned), blocked...)
	}
	if silent && len(blocked) == 0 {
		blocked = append(blocked, silence(tenant))
	}
	// reported returns a condition that the provider writes for each generation of the spec, or a substitute.
	reported := func(kind string) metav1.Condition {
		if condition := find(kind); condition.ObservedGeneration == tenant.Generation {
			return condition
		}
		return metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNotReported,
			Message: fmt.Sprintf("the tenant's provider has not reported yet what %s says for this spec: see that it runs", kind)}
	}
	more := slices.DeleteFunc(blocked, func(condition metav1.Condition) bool {
		return condition.Type == v1alpha1.ConditionClusterIdentified // it is the first
	})
	if tenant.Spec.PrivateNodes != nil || find(v1alpha1.ConditionPoolsSynced).Reason == v1alpha1.ReasonReleasesServers {
		more = append(more, reported(v1alpha1.ConditionPoolsSynced))
	}
	if tenant.Spec.Sync.Enabled() {
		// Within the same cluster there is nothing to sync.
		if synced := reported(v1alpha1.ConditionDRASynced); synced.Reason != v1alpha1.ReasonSameCluster {
			more = append(more, synced)
		}
	}
	return conditions.Sum(reported(v1alpha1.ConditionClusterIdentified), more...)
}

// rolloutOf counts the Machines that name a TenantCluster.
func rolloutOf(tenant string, machines []v1alpha1.Machine) *v1alpha1.RolloutStatus {
	rollout := &v1alpha1.RolloutStatus{}
	for i := range machines {
		machine := &machines[i]
		if machine.Spec.TenantClusterRef == nil || machine.Spec.TenantClusterRef.Name != tenant {
			continue
		}
		rollout.Total++
		counted := countedAs(machine)
		if counted.UpToDate {
			rollout.UpToDate++
		}
		if counted.Unavailable {
			rollout.Unavailable++
		}
	}
	return rollout
}

type counted struct{ UpToDate, Unavailable bool }

func countedAs(machine *v1alpha1.Machine) counted {
	is := func(kind string) bool {
		return conditions.Find(machine.Status.Conditions, kind).Status == metav1.ConditionTrue
	}
	return counted{
		UpToDate: is(v1alpha1.ConditionJoined) && !is(v1alpha1.ConditionDrifted) && machine.DeletionTimestamp.IsZero(),
		// A Machine that is being deleted is given back, although its condition may be true for a moment longer.
		Unavailable: !is(v1alpha1.ConditionReady) || !machine.DeletionTimestamp.IsZero(),
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// enqueueTenant enqueues the TenantCluster of a Machine after batchPeriod.
func enqueueTenant() handler.EventHandler {
	enqueue := func(object client.Object, queue queue) {
		if machine, ok := object.(*v1alpha1.Machine); ok && machine.Spec.TenantClusterRef != nil {
			queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{
				Namespace: machine.Namespace, Name: machine.Spec.TenantClusterRef.Name,
			}}, batchPeriod)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue queue) { enqueue(e.Object, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue queue) { enqueue(e.ObjectNew, queue) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue queue) { enqueue(e.Object, queue) },
	}
}
