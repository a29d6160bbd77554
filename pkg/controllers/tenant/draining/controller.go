// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package draining deletes the NodeClaims of a tenant whose TenantCluster is being deleted, so that Karpenter drains
// the nodes before their servers are released. Karpenter ends the drain at the drain deadline of the TenantCluster.
package draining

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// period is how often the remaining NodeClaims are counted, in case an event was lost.
	period = 30 * time.Second
	// named bounds how many NodeClaims the condition names.
	named = 5
)

// Controller drains the nodes of one tenant.
type Controller struct {
	clock    clock.PassiveClock
	clusters tenant.Clusters
}

func NewController(clk clock.PassiveClock, clusters tenant.Clusters) *Controller {
	return &Controller{clock: clk, clusters: clusters}
}

// Reconcile deletes the NodeClaims that have servers. There is one request, for the tenant.
func (c *Controller) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	// Read live: a cache may have a deleted TenantCluster of the same name.
	cluster := &v1alpha1.TenantCluster{}
	found, err := kube.Find(ctx, c.clusters.Management.Live, c.clusters.TenantCluster, cluster)
	if err != nil || !found || cluster.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, err
	}
	nodeClaims, err := c.withServers(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var names []string
	var errs []error
	for _, nodeClaim := range nodeClaims {
		names = append(names, nodeClaim.Name)
		errs = append(errs, c.drain(ctx, nodeClaim, cluster.DrainDeadline()))
	}
	errs = append(errs, c.writeStatus(ctx, cluster, names))
	if err := errors.Join(errs...); err != nil {
		return kube.RetryConflict(err)
	}
	return reconcile.Result{RequeueAfter: period}, nil
}

// withServers returns the NodeClaims of the tenant's Machines. A Machine whose server is being released needs no drain
// any more.
func (c *Controller) withServers(ctx context.Context) ([]*karpv1.NodeClaim, error) {
	machines, all := &v1alpha1.MachineList{}, &karpv1.NodeClaimList{}
	if err := c.clusters.Management.Live.List(ctx, machines, client.InNamespace(c.clusters.TenantCluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing Machines, %w", err)
	}
	if err := c.clusters.Tenant.Live.List(ctx, all); err != nil {
		return nil, fmt.Errorf("listing NodeClaims, %w", err)
	}
	byName := make(map[string]*karpv1.NodeClaim, len(all.Items))
	for i := range all.Items {
		byName[all.Items[i].Name] = &all.Items[i]
	}
	var nodeClaims []*karpv1.NodeClaim
	for i := range machines.Items {
		machine := &machines.Items[i]
		if !c.clusters.Owns(machine) || !machine.DeletionTimestamp.IsZero() {
			continue
		}
		if nodeClaim := byName[machine.Labels[v1alpha1.NodeClaimLabelKey]]; nodeClaim != nil && tenant.MadeFor(machine, nodeClaim) {
			nodeClaims = append(nodeClaims, nodeClaim)
		}
	}
	return nodeClaims, nil
}

// drain deletes a NodeClaim. Karpenter evicts the pods of its node, and deletes the remaining ones early enough to end
// by the termination time on the NodeClaim. Without that time Karpenter would wait for a PodDisruptionBudget until the
// manager takes the server away from running pods.
func (c *Controller) drain(ctx context.Context, nodeClaim *karpv1.NodeClaim, deadline time.Time) error {
	if period := nodeClaim.Spec.TerminationGracePeriod; period != nil && nodeClaim.DeletionTimestamp.IsZero() {
		if own := c.clock.Now().Add(period.Duration); own.Before(deadline) {
			deadline = own
		}
	}
	set, err := time.Parse(time.RFC3339, nodeClaim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey])
	if err != nil || set.After(deadline) {
		if err := kube.Patch(ctx, c.clusters.Tenant.Client, nodeClaim, "writing the end of the drain on", func() {
			metav1.SetMetaDataAnnotation(&nodeClaim.ObjectMeta, karpv1.NodeClaimTerminationTimestampAnnotationKey, deadline.Format(time.RFC3339))
		}); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if !nodeClaim.DeletionTimestamp.IsZero() {
		return nil
	}
	return kube.Delete(ctx, c.clusters.Tenant.Client, nodeClaim, "draining")
}

// writeStatus writes the condition NodesDrained. The condition also shows the manager that this provider works: then
// the manager does not delete the Machines before the drain has ended.
func (c *Controller) writeStatus(ctx context.Context, cluster *v1alpha1.TenantCluster, left []string) error {
	before := cluster.DeepCopy()
	condition := metav1.Condition{Type: v1alpha1.ConditionNodesDrained, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDrained,
		Message: "no NodeClaim has a server any more", ObservedGeneration: cluster.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now())}
	if len(left) > 0 {
		slices.Sort(left)
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonDraining
		condition.Message = fmt.Sprintf("Karpenter drains the nodes of %d NodeClaims: %s", len(left), conditions.List(left, named))
	}
	if !conditions.Set(&cluster.Status.Conditions, condition) {
		return nil
	}
	return client.IgnoreNotFound(kube.PatchStatus(ctx, c.clusters.Management.Client, before, cluster))
}

func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named("tenant.draining").
		// A deleted NodeClaim may be the last one.
		Watches(&karpv1.NodeClaim{}, c.clusters.Enqueue(), builder.WithPredicates(kube.Only(kube.Deletions))).
		WatchesRawSource(c.clusters.WatchTenantCluster(c.clusters.Enqueue(), predicate.GenerationChangedPredicate{})).
		Complete(c)
}
