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

// release is the decision about NodePools that the TenantCluster drops, changes to another kind, or empties.
type release struct {
	// held are the names of NodePools that are neither written nor deleted.
	held sets.Set[string]
	// refusal is why they are held, or "" if none is.
	refusal string
	// confirmed is what an operator has confirmed, while the condition must record it.
	confirmed string
}

// release holds NodePools until an operator confirms their deletion, if that releases servers. NodePools that replace
// them are not created before. The confirmation is for this generation of the spec. The condition records it before
// anything is deleted: the Machines go one by one, and a process that starts in between finds another number. The
// record stays until the manager has removed the annotation. A confirmation for any number stays, and then the record
// stays until everything is deleted.
func (c *Controller) release(ctx context.Context, cluster *v1alpha1.TenantCluster, wanted []pool, existing []karpv1.NodePool,
) (release, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		return release{}, nil // that needs a confirmation of its own
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
	// Read live: the release includes Machines that the cache does not have yet.
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

// usedBefore reports a confirmation that was used for an earlier generation of the spec, and that the manager has not
// removed yet. It must not confirm a second release of as many servers. Only a confirmation for any number may.
func usedBefore(cluster *v1alpha1.TenantCluster) bool {
	synced := conditions.Find(cluster.Status.Conditions, v1alpha1.ConditionPoolsSynced)
	return cluster.DeletionTimestamp.IsZero() && cluster.Confirmation(v1alpha1.ConfirmDeleteMachinesAnnotationKey) != "" &&
		!cluster.ConfirmsAnyDeletion() && synced.Reason == v1alpha1.ReasonConfirmed &&
		synced.ObservedGeneration != cluster.Generation
}
