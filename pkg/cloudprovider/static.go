// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// FreeFor returns how many servers NodeClaims of a static pool could have now. Such a NodeClaim names no types and no
// resources, so this follows what Create makes of the pool's requirements.
func (c *CloudProvider) FreeFor(ctx context.Context, nodePool *karpenterv1.NodePool) (int64, error) {
	filter, allowance, err := c.filterOf(ctx, nodePool)
	if err != nil {
		return 0, err
	}
	nodeClaim := nodePool.Spec.Template.ToNodeClaim()
	asked := oneAccelerator(nodeClaim, c.management.Catalog.InstanceTypes(filter))
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)

	byType, limits, counted := map[string]int64{}, map[string]int64{}, map[string]bool{}
	for _, room := range allowance.Bound(c.management.Catalog.Rooms(filter)) {
		capacity := room.InstanceType.Capacity
		if len(v1alpha1.Accelerators(capacity)) > 0 && !v1alpha1.AsksForAccelerator(asked, capacity) {
			continue // Such a server is for claims that ask for what it has.
		}
		if len(asked) > 0 && !v1alpha1.AsksForAccelerator(asked, capacity) {
			continue
		}
		if counted[room.Servers] || room.InstanceType.Requirements.Intersects(wanted) != nil || scheduling.NewLabelRequirements(room.Labels).Intersects(wanted) != nil {
			continue
		}
		counted[room.Servers] = true
		byType[room.InstanceType.Name] += int64(room.Free)
		limits[room.InstanceType.Name] = min(int64(room.Limit), allowance.Of(room.InstanceType))
	}
	free := int64(0)
	for name, count := range byType {
		free += min(count, limits[name])
	}
	if allowance.Servers != nil {
		free = min(free, *allowance.Servers)
	}
	return free, nil
}

// Meets tells whether some server that a NodePool could have meets a requirement, whether or not it is free.
func (c *CloudProvider) Meets(ctx context.Context, nodePool *karpenterv1.NodePool, requirement *scheduling.Requirement) (bool, error) {
	filter, _, err := c.filterOf(ctx, nodePool)
	if apierrors.IsNotFound(err) {
		return true, nil // The class or the TenantCluster is missing, and that is said elsewhere.
	}
	if err != nil {
		return false, err
	}
	return c.management.Catalog.Meets(filter, requirement), nil
}

// filterOf lets the types pass that a NodePool could have, and is how much more the tenant may have.
func (c *CloudProvider) filterOf(ctx context.Context, nodePool *karpenterv1.NodePool) (instancetypes.Filter, instancetypes.Allowance, error) {
	reference := nodePool.Spec.Template.Spec.NodeClassRef
	if reference == nil {
		return instancetypes.Filter{}, instancetypes.Allowance{}, fmt.Errorf("NodePool %s has no nodeClassRef", nodePool.Name)
	}
	class := &v1alpha1.MetalNodeClass{}
	if err := c.tenant.Get(ctx, types.NamespacedName{Name: reference.Name}, class); err != nil {
		return instancetypes.Filter{}, instancetypes.Allowance{}, fmt.Errorf("reading MetalNodeClass %s of NodePool %s, %w", reference.Name, nodePool.Name, err)
	}
	tenant, allowance, err := c.tenantCluster(ctx)
	return instancetypes.NewFilter(tenant, class), allowance, err
}
