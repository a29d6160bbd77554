// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/pools"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// release is what is decided about NodePools that the TenantCluster does not call for any more, calls for as another
// kind, or wants no server of.
type release struct {
	// held are the names of NodePools that are neither written nor deleted.
	held sets.Set[string]
	// refusal is why they are held, empty if none is.
	refusal string
	// confirmed is what an operator has confirmed, while that has to be recorded in the condition.
	confirmed string
}

// release holds NodePools whose deletion releases servers until an operator confirms it. Those that take their place
// are not created before. The confirmation is of this generation of the spec and is recorded in the condition before
// anything is deleted: the Machines go one by one, and a process that starts in between finds another number. The
// record stays until the manager has removed the annotation, or with one for any number, which stays, until everything
// is deleted.
func (c *Controller) release(ctx context.Context, cluster *v1alpha1.TenantCluster, wanted []pool, existing []karpv1.NodePool,
) (release, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		return release{}, nil // that is confirmed itself
	}
	staying := lo.Filter(existing, func(nodePool karpv1.NodePool, _ int) bool { return nodePool.DeletionTimestamp.IsZero() })
	lost := nodePoolsOf(OwnerLabel(c.clusters.TenantCluster), staying...).Lost(
		lo.Map(wanted, func(p pool, _ int) pools.Pool { return p.Pool }))
	synced := conditions.Find(cluster.Status.Conditions, v1alpha1.ConditionPoolsSynced)
	if synced.Reason == v1alpha1.ReasonConfirmed && synced.ObservedGeneration == cluster.Generation {
		used := cluster.Confirmation(v1alpha1.ConfirmDeleteMachinesAnnotationKey) == "" || cluster.ConfirmsAnyDeletion()
		if len(lost) == 0 && used {
			return release{}, nil
		}
		return release{confirmed: synced.Message}, nil
	}
	if len(lost) == 0 {
		return release{}, nil
	}
	// Read live: a Machine that the cache does not have yet is released, too.
	machines, tenants := &v1alpha1.MachineList{}, &v1alpha1.TenantClusterList{}
	for _, list := range []client.ObjectList{machines, tenants} {
		if err := c.clusters.Management.Live.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil {
			return release{}, fmt.Errorf("listing the Machines of TenantCluster %s, %w", c.clusters.TenantCluster, err)
		}
	}
	released := pools.ReleaseOf(lost, quota.Charged(cluster.Name, lo.ToSlicePtr(tenants.Items), machines.Items))
	switch {
	case len(released.Machines) == 0:
		return release{}, nil
	case released.Confirmed(cluster):
		result := release{confirmed: fmt.Sprintf("an operator has confirmed that %d servers are released with NodePool %s",
			len(released.Machines), conditions.List(released.NodePools, maxNamed))}
		return result, c.writeStatus(ctx, cluster, outcome{release: result})
	}
	held := sets.New(released.NodePools...)
	for i := range wanted {
		if !lo.ContainsBy(existing, func(nodePool karpv1.NodePool) bool { return nodePool.Name == wanted[i].NodePool }) {
			held.Insert(wanted[i].NodePool)
		}
	}
	return release{held: held, refusal: released.Refusal(cluster)}, nil
}

// usedBefore returns whether the annotation has confirmed a release for an earlier generation of the spec, and the manager has not removed
// it yet. It would confirm another release of as many servers. One for any number is meant to.
func usedBefore(cluster *v1alpha1.TenantCluster) bool {
	synced := conditions.Find(cluster.Status.Conditions, v1alpha1.ConditionPoolsSynced)
	return cluster.DeletionTimestamp.IsZero() && cluster.Confirmation(v1alpha1.ConfirmDeleteMachinesAnnotationKey) != "" &&
		!cluster.ConfirmsAnyDeletion() && synced.Reason == v1alpha1.ReasonConfirmed &&
		synced.ObservedGeneration != cluster.Generation
}
