// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// nodeLimits lets the Machines of a NodePool that is limited to so many nodes be counted and made one at a time. Core
// plans no more than that, but a limit that is lowered while it plans, and nodes that replace others, outrun it: here
// the limit holds.
type nodeLimits struct {
	mu sync.Mutex
}

// makeWithinLimits makes the Machine unless its NodePool has all the nodes that it may have. Then the error is an
// InsufficientCapacityError.
func (c *CloudProvider) makeWithinLimits(ctx context.Context, nodeClaim *karpenterv1.NodeClaim, wanted *v1alpha1.Machine) (*v1alpha1.Machine, error) {
	limit, limited, err := c.nodesLimitOf(ctx, nodeClaim)
	if err != nil {
		return nil, createError(reasonNodePoolUnavailable, err)
	}
	if !limited {
		return c.makeMachine(ctx, wanted)
	}
	c.limits.mu.Lock()
	defer c.limits.mu.Unlock()
	pool := nodeClaim.Labels[karpenterv1.NodePoolLabelKey]
	machines := &v1alpha1.MachineList{}
	// Read live: the cache may not show what was made a moment ago.
	if err := c.management.Live.List(ctx, machines, client.InNamespace(wanted.Namespace), client.MatchingLabels{karpenterv1.NodePoolLabelKey: pool}); err != nil {
		return nil, createError(reasonManagementUnavailable, fmt.Errorf("counting the machines of NodePool %s, %w", pool, err))
	}
	if count := othersOf(machines.Items, wanted); count >= limit {
		c.refusals.note(nodeClaim, c.clock.Now())
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf(
			"NodePool %s has %d nodes and may have %d: raise its limits.nodes, or wait until a node is given back", pool, count, limit))
	}
	return c.makeMachine(ctx, wanted)
}

// othersOf counts the Machines of the tenant that are there to stay, without the one that is wanted.
func othersOf(machines []v1alpha1.Machine, wanted *v1alpha1.Machine) int64 {
	count := int64(0)
	for i := range machines {
		reference := machines[i].Spec.TenantClusterRef
		ours := reference != nil && *reference == *wanted.Spec.TenantClusterRef
		if ours && machines[i].DeletionTimestamp.IsZero() && machines[i].Name != wanted.Name {
			count++
		}
	}
	return count
}

// nodesLimitOf returns how many nodes the pool of a NodeClaim may have, and false if that is not limited.
func (c *CloudProvider) nodesLimitOf(ctx context.Context, nodeClaim *karpenterv1.NodeClaim) (int64, bool, error) {
	name, found := nodeClaim.Labels[karpenterv1.NodePoolLabelKey]
	if !found {
		return 0, false, nil
	}
	nodePool := &karpenterv1.NodePool{}
	err := c.tenant.Get(ctx, types.NamespacedName{Name: name}, nodePool)
	if apierrors.IsNotFound(err) {
		return 0, false, nil // Its NodeClaims go with it; that is core's to see to.
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading NodePool %s, %w", name, err)
	}
	limit, limited := nodePool.Spec.Limits[v1alpha1.ResourceNodes]
	return limit.Value(), limited, nil
}
