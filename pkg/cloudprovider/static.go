// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// FreeFor returns how many servers NodeClaims of a static NodePool could get now. Such a NodeClaim names no types and no
// resources, so this follows how Create derives both from the requirements.
func (c *CloudProvider) FreeFor(ctx context.Context, nodePool *karpenterv1.NodePool) (int64, error) {
	of, err := c.scopeOf(ctx, nodePool)
	if err != nil {
		return 0, err
	}
	filter, remaining, refused := of.filter(), of.remaining, c.refused(ctx, of)
	nodeClaim := nodePool.Spec.Template.ToNodeClaim()
	requested := oneAccelerator(nodeClaim, c.management.Catalog.InstanceTypes(filter))
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)

	byType, limits, counted := map[string]int64{}, map[string]int64{}, map[string]bool{}
	for _, servers := range remaining.LimitServers(c.management.Catalog.FreeServers(filter)) {
		capacity := servers.InstanceType.Capacity
		if len(v1alpha1.Accelerators(capacity)) > 0 && !v1alpha1.AsksForAccelerator(requested, capacity) {
			continue // Such a server is for NodeClaims that request its accelerators.
		}
		if len(requested) > 0 && !v1alpha1.AsksForAccelerator(requested, capacity) {
			continue
		}
		if _, found := refused[servers.InstanceType.Name]; found {
			continue
		}
		if counted[servers.ID] || servers.InstanceType.Requirements.Intersects(wanted) != nil ||
			scheduling.NewLabelRequirements(servers.Labels).Intersects(wanted) != nil {
			continue
		}
		counted[servers.ID] = true
		byType[servers.InstanceType.Name] += int64(servers.Count)
		limits[servers.InstanceType.Name] = min(int64(servers.Limit), remaining.Of(servers.InstanceType))
	}
	total := int64(0)
	for name, count := range byType {
		total += min(count, limits[name])
	}
	if remaining.Servers != nil {
		total = min(total, *remaining.Servers)
	}
	return total, nil
}

// Meets returns whether some server that a NodePool could get meets a requirement, whether or not it is free.
func (c *CloudProvider) Meets(ctx context.Context, nodePool *karpenterv1.NodePool, requirement *labels.Requirement) (bool, error) {
	of, err := c.scopeOf(ctx, nodePool)
	if apierrors.IsNotFound(err) {
		return true, nil // The class or the TenantCluster is missing, which their own conditions report.
	}
	if err != nil {
		return false, err
	}
	return c.management.Catalog.Meets(of.filter(), requirement), nil
}
