// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pools decides which NodePool of a tenant is that of which pool of its TenantCluster, which NodePools an edit of the
// TenantCluster deletes, and whether the release of their servers is confirmed.
package pools

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Pool is one pool as the TenantCluster has it: static or dynamic.
type Pool struct {
	// Where it is written: "autoNodes[0].static[1] (gpu-nodes)".
	Where     string
	AutoNodes *v1alpha1.AutoNodes
	Template  *v1alpha1.NodesTemplate
	Static    *v1alpha1.StaticNodes
	Dynamic   *v1alpha1.DynamicNodes
	// NodePool is the name of its NodePool and MetalNodeClass.
	NodePool string
	// Problem is why it cannot be written.
	Problem string
}

// Name is the name that the TenantCluster gives to the pool.
func (p *Pool) Name() string { return p.Template.Name }

// Kind is that of the NodePool.
func (p *Pool) Kind() Kind {
	if p.Static != nil {
		return Static
	}
	return Dynamic
}

// empty returns whether the pool is static and asks for no server.
func (p *Pool) empty() bool { return p.Static != nil && p.Static.Quantity == 0 }

// Kind of a pool. A static and a dynamic one may have the same name, and then the kind is the end of one's name in the tenant.
type Kind string

// The kinds.
const (
	Static  Kind = "static"
	Dynamic Kind = "dynamic"
)

func (k Kind) other() Kind {
	if k == Static {
		return Dynamic
	}
	return Static
}

// NodePool is what decides which pool a NodePool is that of.
type NodePool struct {
	Kind Kind
	// Ours is true if it was written for the TenantCluster.
	Ours bool
	// Empty is true if it is static and asks for no server.
	Empty bool
}

// NodePools are NodePools of a tenant, by name.
type NodePools map[string]NodePool

// PoolsOf returns the pools of a TenantCluster in the order of its spec, including those that cannot be written. Existing are all
// NodePools of the tenant: with another decision in the next reconcile, servers would be replaced.
func PoolsOf(tenant *v1alpha1.TenantCluster, existing NodePools) []Pool {
	if !tenant.DeletionTimestamp.IsZero() || tenant.Spec.PrivateNodes == nil || !ptr.Deref(tenant.Spec.PrivateNodes.Enabled, true) {
		return nil
	}
	n := names{existing: existing}
	for i := range tenant.Spec.PrivateNodes.AutoNodes {
		group := &tenant.Spec.PrivateNodes.AutoNodes[i]
		for j := range group.Static {
			where := fmt.Sprintf("autoNodes[%d].static[%d] (%s)", i, j, group.Static[j].Name)
			n.pools = append(n.pools, Pool{Where: where, AutoNodes: group, Template: &group.Static[j].NodesTemplate, Static: &group.Static[j]})
		}
		for j := range group.Dynamic {
			where := fmt.Sprintf("autoNodes[%d].dynamic[%d] (%s)", i, j, group.Dynamic[j].Name)
			n.pools = append(n.pools, Pool{Where: where, AutoNodes: group, Template: &group.Dynamic[j].NodesTemplate, Dynamic: &group.Dynamic[j]})
		}
	}
	for i := range n.pools {
		n.pools[i].NodePool = n.nodePool(&n.pools[i])
	}
	n.setProblems()
	return n.pools
}

// names decides which NodePool is which pool's.
type names struct {
	pools    []Pool
	existing NodePools
}

// has returns whether a pool is called so, of any kind if none is given.
func (n *names) has(name string, kinds ...Kind) bool {
	return slices.ContainsFunc(n.pools, func(p Pool) bool {
		return p.Name() == name && (len(kinds) == 0 || slices.Contains(kinds, p.Kind()))
	})
}

// isLong returns whether a pool has its long name already. A pool that is called so has the NodePool of that name.
func (n *names) isLong(name string, k Kind) bool {
	existing := n.existing[long(name, k)]
	return existing.Kind == k && existing.Ours && !n.has(long(name, k))
}

func long(name string, k Kind) string { return name + "-" + string(k) }

// nodePool returns the name of the pool's NodePool and MetalNodeClass. The kind that has the short name keeps it; if neither has, it
// is the static pool's. A pool that has its long name keeps that, also when the other pool is gone.
func (n *names) nodePool(p *Pool) string {
	name, k := p.Name(), p.Kind()
	switch {
	case n.existing[name].Kind == k:
		return name
	case n.isLong(name, k):
		return long(name, k)
	case !n.has(name, k.other()):
		return name
	case n.existing[name].Kind != "":
		return long(name, k)
	case n.isLong(name, k.other()), k == Static:
		return name
	}
	return long(name, k)
}

// setProblems says which pools cannot be written under the names that they are given. Of two pools of one kind and name the
// second is not written. If a long name is that of another pool, neither is: it is not known whose servers those of the NodePool are.
func (n *names) setProblems() {
	for i := range n.pools {
		p := &n.pools[i]
		if p.NodePool != p.Name() && len(p.NodePool) > validation.LabelValueMaxLength {
			p.Problem = fmt.Sprintf("its NodePool would be called %s, because another pool is called %s, too, and that is longer than %d "+
				"characters: give each pool of the tenant a name of its own", p.NodePool, p.Name(), validation.LabelValueMaxLength)
		}
		first := slices.IndexFunc(n.pools[:i], func(earlier Pool) bool { return earlier.NodePool == p.NodePool })
		if first < 0 {
			continue
		}
		other := &n.pools[first]
		if other.Name() == p.Name() {
			p.Problem = fmt.Sprintf("the name %q is that of %s already: give each %s pool of the tenant a name of its own", p.Name(), other.Where,
				p.Kind())
			continue
		}
		p.collidesWith(other)
		other.collidesWith(p)
	}
}

func (p *Pool) collidesWith(rival *Pool) {
	p.Problem = fmt.Sprintf("its NodePool would be called %s, and so would that of %s, because a static and a dynamic pool have "+
		"the same name: give each pool of the tenant a name of its own", p.NodePool, rival.Where)
}
