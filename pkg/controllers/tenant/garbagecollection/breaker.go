// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	breaking "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/breaker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const (
	// confirmedFor is how long the confirmation of an operator is valid at most.
	confirmedFor = time.Hour
	// heldPeriod is how often a held Machine is reconciled: there is no watch for confirmations.
	heldPeriod = 15 * time.Second
)

// breaker stops the collection of Machines when too many look collectable: if a tenant's cluster was restored without
// its NodeClaims, it would lose all servers in seconds. breaker does not count Machines whose server has no image yet.
// Karpenter leaves them behind when it gives NodeClaims up, and their deletion loses no data.
type breaker struct {
	clock    clock.PassiveClock
	clusters tenant.Clusters

	mu sync.Mutex
	// open: the condition may still report that nothing is collected.
	open bool
	// collected are the Machines that were collected recently.
	collected breaking.Recent
}

func newBreaker(clk clock.PassiveClock, clusters tenant.Clusters) *breaker {
	// A provider before this one may have written the condition.
	return &breaker{clock: clk, clusters: clusters, open: true, collected: breaking.Recent{}}
}

// isOpen reports whether allows must be called even without anything to collect, to reset the condition.
func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// collects records that a Machine is collected.
func (b *breaker) collects(machine *v1alpha1.Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if isCounted(machine) {
		b.collected[machine.UID] = b.clock.Now()
	}
}

// allows reports whether Machines may be collected, and writes the condition of the TenantCluster.
func (b *breaker) allows(ctx context.Context) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone, all, err := b.count(ctx)
	if err != nil {
		return false, err
	}
	cluster := &v1alpha1.TenantCluster{}
	if err := b.clusters.Management.Client.Get(ctx, b.clusters.TenantCluster, cluster); err != nil {
		return false, fmt.Errorf("reading TenantCluster %s, %w", b.clusters.TenantCluster, err)
	}
	before := cluster.DeepCopy()
	now := conditions.Find(cluster.Status.Conditions, v1alpha1.ConditionCollectionAllowed)
	next := metav1.Condition{Type: v1alpha1.ConditionCollectionAllowed, ObservedGeneration: cluster.Generation,
		LastTransitionTime: metav1.NewTime(b.clock.Now()).Rfc3339Copy()}
	held, confirmed := now.Status == metav1.ConditionFalse, now.Reason == v1alpha1.ReasonConfirmed
	switch {
	case gone <= breaking.Limit(all):
		if b.open = false; !held && !confirmed {
			return true, nil
		}
		next.Status, next.Reason = metav1.ConditionTrue, v1alpha1.ReasonCollecting
		next.Message = "Machines whose NodeClaim is gone are deleted"
	case confirmed && b.clock.Since(now.LastTransitionTime.Time).Abs() < confirmedFor:
		return true, nil
	case held && cluster.Confirms(v1alpha1.ConfirmCollectMachinesAnnotationKey, stamp(now.LastTransitionTime)):
		next.Status, next.Reason = metav1.ConditionTrue, v1alpha1.ReasonConfirmed
		next.Message = "an operator has confirmed that Machines whose NodeClaim is gone are deleted"
	default:
		if held {
			next.LastTransitionTime = now.LastTransitionTime
		}
		b.open, next.Status, next.Reason = true, metav1.ConditionFalse, v1alpha1.ReasonTooManyMachines
		next.Message = fmt.Sprintf("the NodeClaims of %d of %d Machines are gone or went within %v, more than %d: no Machine without a "+
			"NodeClaim is deleted. Check whether the tenant's cluster is complete, and restore its NodeClaims if it is not. If they were "+
			"deleted on purpose: %s", gone, all, breaking.Window, breaking.Limit(all),
			cluster.ConfirmCommand(v1alpha1.ConfirmCollectMachinesAnnotationKey, stamp(next.LastTransitionTime)))
	}
	// conditions.Set gives a condition with another status the time that the message names.
	if conditions.Set(&cluster.Status.Conditions, next) {
		if err := kube.PatchStatus(ctx, b.clusters.Management.Client, before, cluster); err != nil {
			if apierrors.IsConflict(err) { // the cache is behind: try again
				return false, nil
			}
			return false, err
		}
	}
	return next.Status == metav1.ConditionTrue, nil
}

// stamp returns the value of the confirming annotation. It is for one trip of the breaker, not for the next.
func stamp(moment metav1.Time) string { return moment.UTC().Format(time.RFC3339) }

// count returns how many Machines look collectable or were collected recently, and how many Machines there are.
func (b *breaker) count(ctx context.Context) (gone, all int, err error) {
	machines, nodeClaims := &v1alpha1.MachineList{}, &karpv1.NodeClaimList{}
	if err := b.clusters.Management.Client.List(ctx, machines, client.InNamespace(b.clusters.TenantCluster.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0, fmt.Errorf("listing machines, %w", err)
	}
	if err := b.clusters.Tenant.Client.List(ctx, nodeClaims, client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0, fmt.Errorf("listing nodeclaims, %w", err)
	}
	byName := make(map[string]*karpv1.NodeClaim, len(nodeClaims.Items))
	for i := range nodeClaims.Items {
		byName[nodeClaims.Items[i].Name] = &nodeClaims.Items[i]
	}
	for i := range machines.Items {
		machine := &machines.Items[i]
		if !madeForNodeClaim(b.clusters, machine) || !machine.DeletionTimestamp.IsZero() || !isCounted(machine) {
			continue
		}
		if nodeClaim := byName[machine.Labels[v1alpha1.NodeClaimLabelKey]]; nodeClaim == nil || !tenant.MadeFor(machine, nodeClaim) {
			gone++
		}
		all++
	}
	collected := b.collected.Count(b.clock.Now())
	return gone + collected, all + collected, nil
}

// isCounted reports whether a Machine's server has its image, or had a node.
func isCounted(machine *v1alpha1.Machine) bool {
	return machine.ReportedNode().Name != "" ||
		conditions.Find(machine.Status.Conditions, v1alpha1.ConditionProvisioned).Status == metav1.ConditionTrue
}
