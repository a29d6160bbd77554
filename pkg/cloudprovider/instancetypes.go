// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// GetInstanceTypes returns the types that the tenant is allowed and that the class of the NodePool offers, also those that
// are exhausted or were refused lately, with offerings for the pods that are pending, and those that its nodes are of and that
// do not exist any more. While it is not known which those are, it returns an error: to core the nodes of a type that is missing
// have drifted.
func (c *CloudProvider) GetInstanceTypes(ctx context.Context, nodePool *karpenterv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	of, err := c.scopeOf(ctx, nodePool)
	if err != nil {
		return nil, err
	}
	demand, err := c.demand(ctx)
	if err != nil {
		return nil, err
	}
	gone, err := c.goneTypes(ctx, nodePool)
	if err != nil {
		return nil, err
	}
	offered := of.remaining.LimitTypes(c.management.Catalog.ForNodePool(nodePool).InstanceTypesFor(of.filter(), demand))
	return append(withoutRefused(offered, c.refused(ctx, of)), gone...), nil
}

// goneTypes are the types of the Machines of a NodePool, or of the tenant if that is nil, that do not exist: a
// NodeType was removed, or it or its NodeProvider is being recreated.
func (c *CloudProvider) goneTypes(ctx context.Context, nodePool *karpenterv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	machines := &v1alpha1.MachineList{}
	if err := c.management.Client.List(ctx, machines, client.InNamespace(c.options.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the machines that may have types which do not exist, %w", err)
	}
	var gone []*cloudprovider.InstanceType
	for i := range machines.Items {
		machine := &machines.Items[i]
		reference := machine.Status.NodeTypeRef
		if reference == nil || !c.isOurs(machine) || nodePool != nil && machine.Labels[karpenterv1.NodePoolLabelKey] != nodePool.Name ||
			slices.ContainsFunc(gone, func(one *cloudprovider.InstanceType) bool { return one.Name == reference.Name }) {
			continue
		}
		if _, found := c.management.Catalog.InstanceType(reference.Name); !found {
			gone = append(gone, c.management.Catalog.ForNodePool(nodePool).Gone(reference.Name, ptr.Deref(machine.Status.Cost, 0)))
		}
	}
	return gone, nil
}

// FreeServers returns the servers that the tenant could get now, by type and domain, of whatever class. It returns an
// error until they are known.
func (c *CloudProvider) FreeServers(ctx context.Context) ([]instancetypes.FreeServers, error) {
	of, err := c.scopeOf(ctx, nil)
	if err != nil {
		return nil, err
	}
	return of.remaining.LimitServers(c.management.Catalog.FreeServers(of.filter())), nil
}

// demand is what the pods without a node select.
func (c *CloudProvider) demand(ctx context.Context) (*instancetypes.Demand, error) {
	pods, pools := &corev1.PodList{}, &karpenterv1.NodePoolList{}
	if err := c.tenant.List(ctx, pods, client.MatchingFields{"spec.nodeName": ""}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods without a node, %w", err)
	}
	if err := c.tenant.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodePools, %w", err)
	}
	return instancetypes.NewDemand(pods.Items, pools.Items), nil
}

// scope is whose types are asked for.
type scope struct {
	// nodePool and class are nil if it is for the tenant as a whole.
	nodePool *karpenterv1.NodePool
	class    *v1alpha1.MetalNodeClass
	tenant   *v1alpha1.TenantCluster
	// remaining is how much more the tenant may get.
	remaining instancetypes.RemainingQuota
}

// filter selects the types that can be had.
func (s scope) filter() instancetypes.Filter { return instancetypes.NewFilter(s.tenant, s.class) }

// scopeOf returns the scope of a NodePool, or of the tenant if that is nil.
func (c *CloudProvider) scopeOf(ctx context.Context, nodePool *karpenterv1.NodePool) (scope, error) {
	of := scope{nodePool: nodePool}
	if nodePool != nil {
		reference := nodePool.Spec.Template.Spec.NodeClassRef
		if reference == nil {
			return scope{}, fmt.Errorf("NodePool %s has no nodeClassRef", nodePool.Name)
		}
		of.class = &v1alpha1.MetalNodeClass{}
		if err := c.tenant.Get(ctx, types.NamespacedName{Name: reference.Name}, of.class); err != nil {
			return scope{}, fmt.Errorf("reading MetalNodeClass %s of NodePool %s, %w", reference.Name, nodePool.Name, err)
		}
	}
	var err error
	of.tenant, of.remaining, err = c.tenantCluster(ctx)
	return of, err
}

// tenantCluster returns the tenant, and how much more it may get.
func (c *CloudProvider) tenantCluster(ctx context.Context) (*v1alpha1.TenantCluster, instancetypes.RemainingQuota, error) {
	if err := c.management.Synced(); err != nil {
		return nil, instancetypes.RemainingQuota{}, fmt.Errorf("listing instance types, %w", err)
	}
	tenant := &v1alpha1.TenantCluster{}
	key := types.NamespacedName{Namespace: c.options.Namespace, Name: c.options.TenantCluster}
	if err := c.management.Client.Get(ctx, key, tenant); err != nil {
		return nil, instancetypes.RemainingQuota{}, fmt.Errorf("reading TenantCluster %s in the management cluster, %w", key, err)
	}
	remaining, err := c.allowanceWithin(ctx, tenant)
	return tenant, remaining, err
}

// FreeFor returns how many servers NodeClaims of a static NodePool could get now. Such a NodeClaim names no types and no
// resources, so this follows how Create derives both from the requirements.
func (c *CloudProvider) FreeFor(ctx context.Context, nodePool *karpenterv1.NodePool) (int64, error) {
	of, err := c.scopeOf(ctx, nodePool)
	if err != nil {
		return 0, err
	}
	filter, remaining, refused, catalog := of.filter(), of.remaining, c.refused(ctx, of), c.management.Catalog.ForNodePool(nodePool)
	nodeClaim := nodePool.Spec.Template.ToNodeClaim()
	requested := oneAccelerator(nodeClaim, catalog.InstanceTypes(filter))
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)

	byType, limits, counted := map[string]int64{}, map[string]int64{}, map[string]bool{}
	for _, servers := range remaining.LimitServers(catalog.FreeServers(filter)) {
		capacity := servers.InstanceType.Capacity
		if (len(v1alpha1.Accelerators(capacity)) > 0 || len(requested) > 0) && !v1alpha1.AsksForAccelerator(requested, capacity) {
			continue // A server with accelerators is for NodeClaims that request them.
		}
		_, found := refused[servers.InstanceType.Name]
		if found || counted[servers.ID] || servers.InstanceType.Requirements.Intersects(wanted) != nil ||
			!servers.In(wanted) {
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

// Meets returns whether servers of some type that a NodePool could get meet each of the requirements, whether or not they are free.
func (c *CloudProvider) Meets(ctx context.Context, nodePool *karpenterv1.NodePool, requirements ...*labels.Requirement) (bool, error) {
	of, err := c.scopeOf(ctx, nodePool)
	if apierrors.IsNotFound(err) {
		return true, nil // The class or the TenantCluster is missing, which their own conditions report.
	}
	if err != nil {
		return false, err
	}
	return c.management.Catalog.Meets(of.filter(), requirements...), nil
}
