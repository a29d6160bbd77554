// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// GetInstanceTypes returns the types that the tenant may have and the class of the NodePool offers, with offerings for
// the pending pods. It includes exhausted types, recently refused types, and types that existing nodes have but that do
// not exist any more. It returns an error while it does not know them all: to core the nodes of a missing type have
// drifted.
func (c *CloudProvider) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	s, err := c.scopeOf(ctx, nodePool)
	if err != nil {
		return nil, err
	}
	demand, err := instancetypes.ReadDemand(ctx, c.tenant)
	if err != nil {
		return nil, err
	}
	offered := instancetypes.LimitTypes(s.rest, s.catalog.InstanceTypesFor(s.filter(), demand))
	for i, instanceType := range offered {
		if _, found := c.refused(s, instanceType.Name); found {
			offered[i] = instancetypes.Unavailable(instanceType)
		}
		offered[i] = instancetypes.WithLabels(offered[i], c.heldBack(s, instanceType.Name))
	}
	return instancetypes.ForNodePool(nodePool, append(offered, c.goneTypes(s)...)), nil
}

// goneTypes returns the types of Machines of the NodePool, or of the tenant if nodePool is nil, that do not exist: a
// NodeType was removed, or it or its NodeProvider is being recreated.
func (c *CloudProvider) goneTypes(s scope) (gone []*cloudprovider.InstanceType) {
	for i := range s.machines {
		machine := &s.machines[i]
		reference := machine.Status.NodeTypeRef
		if reference == nil || !c.isOurs(machine) || s.nodePool != nil && machine.Labels[karpv1.NodePoolLabelKey] != s.nodePool.Name ||
			slices.ContainsFunc(gone, func(other *cloudprovider.InstanceType) bool { return other.Name == reference.Name }) {
			continue
		}
		if !s.catalog.Exists(reference.Name) {
			gone = append(gone, s.catalog.Gone(reference.Name, ptr.Deref(machine.Status.Cost, 0)))
		}
	}
	return gone
}

// FreeServers returns the servers that the tenant could get now, for any class. It fails until they are known.
func (c *CloudProvider) FreeServers(ctx context.Context) ([]instancetypes.FreeServers, error) {
	s, err := c.scopeOf(ctx, nil)
	if err != nil {
		return nil, err
	}
	return instancetypes.LimitServers(s.rest, s.catalog.FreeServers(s.filter())), nil
}

// AllServers returns all servers that the tenant may have, free or not. For each place it counts at most the quota.
func (c *CloudProvider) AllServers(ctx context.Context) ([]instancetypes.FreeServers, error) {
	s, err := c.scopeOf(ctx, nil)
	if err != nil {
		return nil, err
	}
	whole := s.rest
	whole.Quota, whole.Usage = s.tenant.Spec.Quota, quota.Usage{}
	return instancetypes.LimitServers(whole, s.catalog.AllServers(s.filter())), nil
}

// scope selects a tenant and a NodePool, and holds the servers that they can still get.
type scope struct {
	// nodePool and class are nil if the scope is the whole tenant.
	nodePool *karpv1.NodePool
	class    *v1alpha1.MetalNodeClass
	tenant   *v1alpha1.TenantCluster
	// machines are the Machines in the tenant's namespace, and those that Create will make.
	machines []v1alpha1.Machine
	// catalog is the catalog without the servers that these Machines take.
	catalog *instancetypes.Catalog
	// rest is the free part of the tenant's quota.
	rest quota.Rest
}

// filter selects the types that the scope can have.
func (s scope) filter() instancetypes.Filter { return instancetypes.NewFilter(s.tenant, s.class) }

// scopeOf returns the scope of a NodePool, or of the tenant if nodePool is nil. The scope counts the launching
// Machines, too, if they do not exist yet.
func (c *CloudProvider) scopeOf(ctx context.Context, nodePool *karpv1.NodePool, launching ...v1alpha1.Machine) (scope, error) {
	s := scope{nodePool: nodePool, tenant: &v1alpha1.TenantCluster{}}
	if nodePool != nil {
		reference := nodePool.Spec.Template.Spec.NodeClassRef
		if reference == nil {
			return scope{}, fmt.Errorf("NodePool %s has no nodeClassRef", nodePool.Name)
		}
		s.class = &v1alpha1.MetalNodeClass{}
		if err := c.tenant.Get(ctx, types.NamespacedName{Name: reference.Name}, s.class); err != nil {
			return scope{}, fmt.Errorf("reading MetalNodeClass %s of NodePool %s, %w", reference.Name, nodePool.Name, err)
		}
	}
	if err := c.management.Synced(); err != nil {
		return scope{}, fmt.Errorf("listing instance types, %w", err)
	}
	key := c.tenantKey()
	if err := c.management.Client.Get(ctx, key, s.tenant); err != nil {
		return scope{}, fmt.Errorf("reading TenantCluster %s in the management cluster, %w", key, err)
	}
	machines := &v1alpha1.MachineList{}
	if err := c.management.Client.List(ctx, machines, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return scope{}, fmt.Errorf("listing the Machines of TenantCluster %s, %w", key, err)
	}
	s.machines = machines.Items
	for _, machine := range launching {
		if !slices.ContainsFunc(machines.Items, func(made v1alpha1.Machine) bool { return made.Name == machine.Name }) {
			s.machines = append(s.machines, machine)
		}
	}
	var taking []*v1alpha1.Machine
	for i := range s.machines {
		if machine := &s.machines[i]; machine.Status.ProviderID != "" || isPending(machine) {
			taking = append(taking, machine)
		}
	}
	charged, err := c.charged(ctx, s.tenant, s.machines)
	if err != nil {
		return scope{}, err
	}
	rest := c.management.Catalog.Without(s.tenant, taking, c.restOf(s.tenant, charged, nil).ByType())
	s.catalog, s.rest = rest.Catalog, c.restOf(s.tenant, charged, rest.NodeTypes)
	return s, nil
}

// isPending reports whether the manager has yet to decide which server a Machine gets.
func isPending(machine *v1alpha1.Machine) bool {
	result, _ := resultOf(machine)
	return result == pending && machine.DeletionTimestamp.IsZero()
}

// FreeFor returns how many servers NodeClaims of a static NodePool could get now. If recent refusals hide servers,
// retryAfter is how long the first of these refusals lasts, or else zero. A NodeClaim of a static NodePool names no
// types and no resources, so FreeFor follows how Create derives both from the requirements.
func (c *CloudProvider) FreeFor(ctx context.Context, nodePool *karpv1.NodePool) (
	free int64, retryAfter time.Duration, err error,
) {
	free, retryAfter, err = c.freeFor(ctx, nodePool)
	if err != nil || free == 0 {
		return 0, retryAfter, err
	}
	launching, err := c.launching(ctx)
	if err != nil {
		return 0, 0, err
	}
	// Count again even if nothing is launching: Machines may have been made since the first count.
	return c.freeFor(ctx, nodePool, launching...)
}

// launching returns the Machines that Create makes, or has made, for the NodeClaims without a server. It reads the
// NodeClaims live: core makes NodeClaims for static NodePools without waiting until its cache has the last one.
func (c *CloudProvider) launching(ctx context.Context) (machines []v1alpha1.Machine, err error) {
	nodeClaims := &karpv1.NodeClaimList{}
	if err := c.live.List(ctx, nodeClaims); err != nil {
		return nil, fmt.Errorf("listing the NodeClaims without a server, %w", err)
	}
	for i := range nodeClaims.Items {
		nodeClaim, class := &nodeClaims.Items[i], &v1alpha1.MetalNodeClass{}
		if nodeClaim.Status.ProviderID != "" || !nodeClaim.DeletionTimestamp.IsZero() || nodeClaim.Spec.NodeClassRef == nil {
			continue
		}
		if found, err := kube.Find(ctx, c.tenant, types.NamespacedName{Name: nodeClaim.Spec.NodeClassRef.Name}, class); err != nil || !found {
			if err != nil {
				return nil, err
			}
			continue // core deletes it
		}
		types := c.management.Catalog.InstanceTypes(instancetypes.NewFilter(nil, class))
		machines = append(machines, *machineFor(nodeClaim, class, types, c.management.Catalog.Advertises, c.options))
	}
	return machines, nil
}

func (c *CloudProvider) freeFor(ctx context.Context, nodePool *karpv1.NodePool,
	launching ...v1alpha1.Machine) (total int64, retryAfter time.Duration, err error) {
	s, err := c.scopeOf(ctx, nodePool, launching...)
	if err != nil {
		return 0, 0, err
	}
	nodeClaim := nodePool.Spec.Template.ToNodeClaim()
	requested := oneAccelerator(nodeClaim, s.catalog.InstanceTypes(s.filter()))
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)

	byType, limits, counted := map[string]int64{}, map[string]int64{}, map[string]bool{}
	for _, servers := range instancetypes.LimitServers(s.rest, s.catalog.FreeServers(s.filter())) {
		capacity, name := servers.InstanceType.Capacity, servers.InstanceType.Name
		if (len(v1alpha1.Accelerators(capacity)) > 0 || len(requested) > 0) && !v1alpha1.AsksForAccelerator(requested, capacity) {
			continue // A server with accelerators is for NodeClaims that request them.
		}
		if counted[servers.ID] || !servers.Meet(wanted) {
			continue
		}
		if refused, found := c.refused(s, name); found {
			wait := refused.until.Sub(c.clock.Now())
			retryAfter = min(cmp.Or(retryAfter, wait), wait)
			continue
		}
		counted[servers.ID] = true
		byType[name] += int64(servers.Count)
		limits[name] = min(int64(servers.Limit), s.rest.Of(name))
	}
	for name, count := range byType {
		total += min(count, limits[name])
	}
	return min(total, s.rest.Servers()), retryAfter, nil
}

// Meets reports whether servers of one type that the NodePool could get meet each of the requirements, free or not.
func (c *CloudProvider) Meets(ctx context.Context, nodePool *karpv1.NodePool, requirements ...*labels.Requirement) (bool, error) {
	s, err := c.scopeOf(ctx, nodePool)
	if apierrors.IsNotFound(err) {
		return true, nil // The class or the TenantCluster is missing, which their own conditions report.
	}
	if err != nil {
		return false, err
	}
	return c.management.Catalog.Meets(s.filter(), requirements...), nil
}
