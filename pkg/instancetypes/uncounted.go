// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// Remainder is a catalog without the servers that a tenant's Machines take and that the NodeTypes still count as free.
type Remainder struct {
	*Catalog
	// NodeTypes of the Machines without a server, by name: the manager's probable choice. A Machine that gets none is
	// left out.
	NodeTypes map[string]string

	from *snapshot
	key  string
	// left is how many more servers of a type the tenant's quota leaves. A missing type is not bounded.
	left map[string]int64
	// changed are copies of the types that a server was taken from.
	changed map[string]*v1alpha1.NodeType
}

// Without returns the servers that are left for the next NodeClaims of a tenant. The manager claims a server before it
// counts it, and NodeTypes and Machines arrive by different watches. So a Machine takes a server from a type, and from
// the types that share it,
//
//   - if it has a server, until the counts of the type include its claim. Claim numbers are compared, and not times;
//   - if it has none, from the manager's probable choice: the cheapest type that fits and has a free server, in its
//     first domain that fits. Each Machine must be waiting for the manager's decision, or have a server. left is how
//     many more servers of some types the tenant's quota leaves beside the servers that it has.
//
// Free servers in domains of other tenants are not left either.
func (c *Catalog) Without(tenant *v1alpha1.TenantCluster, machines []*v1alpha1.Machine,
	left map[string]int64) *Remainder {
	current := c.read()
	var key strings.Builder
	var pending []*v1alpha1.Machine
	for _, machine := range machines {
		if machine.Status.ProviderID == "" || len(current.uncounted(machine)) > 0 {
			pending = append(pending, machine)
			chosen, _ := machine.ChosenHost()
			fmt.Fprintf(&key, "%s %s %d %d %s %t,", machine.Name, machine.UID, machine.Generation, machine.Status.ClaimNumber,
				lo.FromPtr(chosen).NodeType, machine.HasHost())
		}
	}
	owned := ownedBy(machines, lo.Map(current.items, func(item item, _ int) *v1alpha1.NodeType { return item.nodeType })...)
	allowed := tenant.Spec.AllowedNodeTypes
	fmt.Fprint(&key, slices.Sorted(maps.Keys(owned)), left, allowed == nil, lo.FromPtr(allowed))
	if known := c.remainder.Load(); known != nil && known.from == current && known.key == key.String() {
		return known
	}
	r := &Remainder{Catalog: c, NodeTypes: map[string]string{}, from: current, key: key.String(), left: maps.Clone(left),
		changed: map[string]*v1alpha1.NodeType{}}
	for i := range current.items {
		if changed, _ := withhold(current.items[i].nodeType, owned); changed != nil {
			r.changed[changed.Name] = changed
		}
	}
	for _, machine := range pending {
		if machine.Status.ProviderID == "" {
			r.takeAny(tenant, machine)
			continue
		}
		for _, name := range current.uncounted(machine) {
			r.take(name, machine.Status.NodeLabels)
		}
	}
	if len(r.changed) > 0 {
		r.Catalog = c.replace(r.changed)
	}
	c.remainder.Store(r)
	return r
}

// uncounted returns the types whose counts do not include a Machine's claim: of its own type and the types of its
// server.
func (s *snapshot) uncounted(machine *v1alpha1.Machine) (names []string) {
	if machine.Status.NodeTypeRef == nil {
		return nil
	}
	own, known := s.byName[machine.Status.NodeTypeRef.Name]
	if !known {
		return nil
	}
	if own.nodeType.Status.CountedUntil < machine.Status.ClaimNumber {
		names = append(names, own.name)
	}
	for _, name := range own.sharedWith {
		other, known := s.byName[name]
		if known && other.nodeType.Status.CountedUntil < machine.Status.ClaimNumber &&
			machine.Status.NodeLabels[v1alpha1.TypeLabelKey(name)] != "" {
			names = append(names, name)
		}
	}
	return names
}

// takeAny takes the server that the manager will probably choose for a Machine.
func (r *Remainder) takeAny(tenant *v1alpha1.TenantCluster, machine *v1alpha1.Machine) {
	kubelet, _ := capacity.ParseKubelet(machine.Spec.KubeletArgs)
	request := matching.Request{Resources: machine.Spec.Resources, Kubelet: kubelet, Drivers: machine.Spec.RequestedDrivers,
		Allowed: tenant.Allows}
	named := ""
	if chosen, _ := machine.ChosenHost(); chosen != nil {
		named = chosen.NodeType
	}
	if machine.Spec.NodeTypeRef != nil {
		named = machine.Spec.NodeTypeRef.Name
		request.NodeType = named
	}
	wanted := scheduling.NewNodeSelectorRequirements(machine.Spec.Requirements...)
	byCost := slices.SortedStableFunc(slices.Values(r.from.items), func(a, b item) int {
		return cmp.Compare(a.nodeType.Status.Cost, b.nodeType.Status.Cost)
	})
	for _, item := range byCost {
		nodeType := matching.TypeOf(item.nodeType)
		// A Machine that has chosen a server is counted in the quota already.
		left, bounded := r.left[item.name]
		bounded = bounded && !machine.HasHost()
		if named != "" && named != item.name || bounded && left == 0 ||
			item.instanceType.Requirements.Intersects(wanted) != nil ||
			nodeType.Check(&request).Reason != matching.Fits {
			continue
		}
		item.nodeType = r.nodeType(item.name)
		for _, servers := range item.servers(available) {
			if servers.in(wanted) {
				r.NodeTypes[machine.Name] = item.name
				if bounded {
					r.left[item.name]--
				}
				for _, name := range append([]string{item.name}, servers.sharedWith...) {
					r.take(name, servers.Labels)
				}
				return
			}
		}
	}
}

// nodeType returns a type with its remaining servers.
func (r *Remainder) nodeType(name string) *v1alpha1.NodeType {
	if changed, found := r.changed[name]; found {
		return changed
	}
	if found, known := r.from.byName[name]; known {
		return found.nodeType
	}
	return nil
}

// take subtracts a server, whose node has these labels, from the counts of a type, if one is free there.
func (r *Remainder) take(name string, labels map[string]string) {
	original := r.nodeType(name)
	if original == nil {
		return
	}
	index := domainOf(original, labels)
	if len(original.Status.Domains) > 0 && (index < 0 || original.Status.Domains[index].Available <= 0) {
		return
	}
	changed, copied := r.changed[name]
	if !copied {
		changed = original.DeepCopy()
		r.changed[name] = changed
	}
	status, zone := &changed.Status, labels[corev1.LabelTopologyZone]
	if index >= 0 {
		domain := &status.Domains[index]
		domain.Available--
		zone = domain.Zone
	}
	status.Capacity.Available = max(0, status.Capacity.Available-1)
	for i := range status.Zones {
		if status.Zones[i].Name == zone {
			status.Zones[i].Available = max(0, status.Zones[i].Available-1)
		}
	}
	if changed.Spec.MaxCapacity != nil {
		for i := range status.Domains {
			status.Domains[i].Available = min(status.Domains[i].Available, status.Capacity.Available)
		}
	}
}

// domainOf returns the index of the domain of a type that shares most labels with a node, and has none that the node
// does not have. It is -1 if there is none.
func domainOf(nodeType *v1alpha1.NodeType, labels map[string]string) int {
	found, most := -1, -1
	for i := range nodeType.Status.Domains {
		domain := &nodeType.Status.Domains[i]
		own := domain.NodeLabels(nodeType.Name)
		// Types that share a server may name different zones.
		if len(domain.SharedWith) == 0 && domain.Zone != labels[corev1.LabelTopologyZone] || len(own) <= most {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(own)), func(key string) bool { return labels[key] != own[key] }) {
			found, most = i, len(own)
		}
	}
	return found
}

// replace returns the catalog with some types changed.
func (c *Catalog) replace(changed map[string]*v1alpha1.NodeType) *Catalog {
	c.mu.Lock()
	defer c.mu.Unlock()
	result := &Catalog{pods: c.pods, types: make(map[string]*entry, len(c.types)), keys: c.keys, sizes: c.sizes}
	for name, known := range c.types {
		result.types[name] = &entry{nodeType: known.nodeType, converted: known.converted}
		if nodeType, found := changed[name]; found {
			result.types[name] = &entry{nodeType: nodeType}
		}
	}
	return result
}
