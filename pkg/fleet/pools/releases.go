// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"maps"
	"slices"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// nodePoolLabelKey is Karpenter's label on a Machine with the name of its NodePool.
const nodePoolLabelKey = "karpenter.sh/nodepool"

// maxNamed limits how many Machines and NodePools a message names.
const maxNamed = 5

// Expected returns the NodePools of a TenantCluster, as far as they follow from its spec and its Machines. If a static
// and a dynamic pool share a name and one has no Machine, only the tenant's cluster tells who has the short name.
func Expected(tenant *v1alpha1.TenantCluster, machines []*v1alpha1.Machine) NodePools {
	used, seen, expected := map[string]bool{}, NodePools{}, NodePools{}
	for _, machine := range machines {
		used[machine.Labels[nodePoolLabelKey]] = true
	}
	for _, p := range PoolsOf(tenant, nil) {
		if name := long(p.Name(), p.Kind()); used[name] {
			seen[name] = NodePool{Kind: p.Kind(), Ours: true, Empty: p.empty()}
		}
	}
	for _, p := range PoolsOf(tenant, seen) {
		expected[p.NodePool] = NodePool{Kind: p.Kind(), Ours: true, Empty: p.empty()}
	}
	return expected
}

// Lost returns the names of the NodePools, sorted, that lose all servers with the given pools. A NodePool does if no
// pool uses its name any more, if the pool with its name has the other kind, so that the NodePool is recreated, or if
// the pool is static and no longer asks for a server.
func (n NodePools) Lost(pools []Pool) []string {
	wanted := map[string]*Pool{}
	for i := range pools {
		wanted[pools[i].NodePool] = &pools[i]
	}
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		p, found := wanted[name]
		if !found && n[name].Ours || found && p.Problem == "" && (p.Kind() != n[name].Kind || p.empty() && !n[name].Empty) {
			lost = append(lost, name)
		}
	}
	return lost
}

// Release is what is released with NodePools that are deleted or no longer ask for a server.
type Release struct {
	// NodePools are the names of the NodePools that have Machines, sorted.
	NodePools []string
	// Machines are the names of the Machines with their namespace, sorted.
	Machines []string
}

// ReleaseOf returns what is released with the named NodePools. machines are all that are charged to the tenant.
func ReleaseOf(nodePools []string, machines []*v1alpha1.Machine) Release {
	release := Release{}
	for _, machine := range machines {
		if name := machine.Labels[nodePoolLabelKey]; slices.Contains(nodePools, name) {
			release.NodePools = append(release.NodePools, name)
			release.Machines = append(release.Machines, machine.Namespace+"/"+machine.Name)
		}
	}
	slices.Sort(release.NodePools)
	slices.Sort(release.Machines)
	release.NodePools = slices.Compact(release.NodePools)
	return release
}

// Confirmed reports whether the TenantCluster confirms the release. A release without servers needs no confirmation.
func (r Release) Confirmed(tenant *v1alpha1.TenantCluster) bool {
	return len(r.Machines) == 0 || tenant.ConfirmsDeletion(len(r.Machines))
}

// Refusal says why the release needs a confirmation, and how to give it.
func (r Release) Refusal(tenant *v1alpha1.TenantCluster) string {
	return fmt.Sprintf("%d of its servers would be released with NodePool %s, and their nodes drained whatever the disruption budgets "+
		"allow: Machine %s. Have spec.privateNodes call for the pools as they were, or confirm: %s", len(r.Machines),
		conditions.List(r.NodePools, maxNamed), conditions.List(r.Machines, maxNamed),
		tenant.HowToConfirmDeletion(len(r.Machines)))
}
