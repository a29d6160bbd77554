// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pools assigns the NodePools of a tenant to the pools of its TenantCluster. It also decides which NodePools an
// edit of the TenantCluster deletes, and whether the release of their servers is confirmed.
package pools

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Pool is one pool of the TenantCluster: static or dynamic.
type Pool struct {
	// Where is the place of the pool in the spec: "autoNodes[0].static[1] (gpu-nodes)".
	Where     string
	AutoNodes *v1alpha1.AutoNodes
	Template  *v1alpha1.NodesTemplate
	Static    *v1alpha1.StaticNodes
	Dynamic   *v1alpha1.DynamicNodes
	// NodePool is the name of the pool's NodePool and MetalNodeClass.
	NodePool string
	// Problem is why the NodePool cannot be written.
	Problem string
}

// Name returns the name of the pool in the TenantCluster.
func (p *Pool) Name() string { return p.Template.Name }

// Kind returns the kind of the NodePool.
func (p *Pool) Kind() Kind {
	if p.Static != nil {
		return Static
	}
	return Dynamic
}

// empty reports whether the pool is static and asks for no server.
func (p *Pool) empty() bool { return p.Static != nil && p.Static.Quantity == 0 }

// Kind of a pool. If a static and a dynamic pool have the same name, the NodePool of one gets the kind as a suffix.
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

// NodePool has the facts that assign a NodePool of the tenant to a pool.
type NodePool struct {
	Kind Kind
	// Ours is true if the NodePool was written for the TenantCluster.
	Ours bool
	// Empty is true if the NodePool is static and asks for no server.
	Empty bool
}

// NodePools are NodePools of a tenant, by name.
type NodePools map[string]NodePool

// PoolsOf returns the pools of a TenantCluster in the order of its spec, including pools that cannot be written.
// existing are all NodePools of the tenant. They keep names stable: another name would replace servers.
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

// names assigns NodePool names to pools.
type names struct {
	pools    []Pool
	existing NodePools
}

// has reports whether a pool has the name and one of the kinds; no kinds means any kind.
func (n *names) has(name string, kinds ...Kind) bool {
	return slices.ContainsFunc(n.pools, func(p Pool) bool {
		return p.Name() == name && (len(kinds) == 0 || slices.Contains(kinds, p.Kind()))
	})
}

// isLong reports whether a pool already has its long name. A pool whose own name this is has precedence.
func (n *names) isLong(name string, k Kind) bool {
	existing := n.existing[long(name, k)]
	return existing.Kind == k && existing.Ours && !n.has(long(name, k))
}

func long(name string, k Kind) string { return name + "-" + string(k) }

// nodePool returns the name of the pool's NodePool and MetalNodeClass. The kind that has the short name keeps it. If
// neither has it, the static pool gets it. A pool with its long name keeps it, even when the other pool is gone.
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

// setProblems says which pools cannot be written. Of two pools with one kind and name, the second is not written. If a
// pool's long name is the name of another pool, neither is written: nothing tells whose servers the NodePool has.
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
