// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"fmt"
	"slices"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/validation"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// entry is one pool as the TenantCluster has it: static or dynamic.
type entry struct {
	// where it is written: "autoNodes[0].static[1] (gpu-nodes)".
	where     string
	autoNodes *v1alpha1.AutoNodes
	template  *v1alpha1.NodesTemplate
	static    *v1alpha1.StaticNodes
	dynamic   *v1alpha1.DynamicNodes
}

func entriesOf(autoNodes []v1alpha1.AutoNodes) (entries []entry) {
	for i := range autoNodes {
		group := &autoNodes[i]
		for j := range group.Static {
			where := fmt.Sprintf("autoNodes[%d].static[%d] (%s)", i, j, group.Static[j].Name)
			entries = append(entries, entry{where: where, autoNodes: group, template: &group.Static[j].NodesTemplate, static: &group.Static[j]})
		}
		for j := range group.Dynamic {
			where := fmt.Sprintf("autoNodes[%d].dynamic[%d] (%s)", i, j, group.Dynamic[j].Name)
			entries = append(entries, entry{where: where, autoNodes: group, template: &group.Dynamic[j].NodesTemplate, dynamic: &group.Dynamic[j]})
		}
	}
	return entries
}

// kind of a pool. A static and a dynamic one may have the same name, and then the kind is the end of one's name in the tenant.
type kind string

const (
	static  kind = "static"
	dynamic kind = "dynamic"
)

func (k kind) other() kind {
	if k == static {
		return dynamic
	}
	return static
}

func kindOfPool(nodePool *karpv1.NodePool) kind {
	if nodePool.Spec.Replicas != nil {
		return static
	}
	return dynamic
}

func (e *entry) kind() kind {
	if e.static != nil {
		return static
	}
	return dynamic
}

func (e *entry) name() string { return e.template.Name }

// names decides which NodePool is which entry's, from the NodePools that there are: another decision in the next reconcile
// would replace servers.
type names struct {
	entries []entry
	// kinds of all NodePools, and of those that were written for the TenantCluster.
	kinds, ours map[string]kind
}

func newNames(entries []entry, owner string, existing []karpv1.NodePool) names {
	n := names{entries: entries, kinds: map[string]kind{}, ours: map[string]kind{}}
	for i := range existing {
		n.kinds[existing[i].Name] = kindOfPool(&existing[i])
		if existing[i].Labels[v1alpha1.TenantPoolLabelKey] == owner {
			n.ours[existing[i].Name] = kindOfPool(&existing[i])
		}
	}
	return n
}

// has returns whether an entry is called so, of any kind if none is given.
func (n *names) has(name string, kinds ...kind) bool {
	return slices.ContainsFunc(n.entries, func(e entry) bool {
		return e.name() == name && (len(kinds) == 0 || slices.Contains(kinds, e.kind()))
	})
}

// isLong returns whether a pool has its long name already. An entry that is called so has the NodePool of that name.
func (n *names) isLong(name string, k kind) bool {
	return n.ours[long(name, k)] == k && !n.has(long(name, k))
}

func long(name string, k kind) string { return name + "-" + string(k) }

// poolName returns the name of the entry's NodePool and MetalNodeClass. The kind that has the short name keeps it; if neither has, it
// is the static pool's. A pool that has its long name keeps that, also when the other pool is gone.
func (n *names) poolName(e *entry) string {
	name, k := e.name(), e.kind()
	switch {
	case n.kinds[name] == k:
		return name
	case n.isLong(name, k):
		return long(name, k)
	case !n.has(name, k.other()):
		return name
	case n.kinds[name] != "":
		return long(name, k)
	case n.isLong(name, k.other()), k == static:
		return name
	}
	return long(name, k)
}

// problems are why entries cannot be written under the names that they are given, by index. Of two pools of one kind and name the
// second is not written. If a long name is that of another pool, neither is: it is not known whose servers those of the NodePool are.
func (n *names) problems(given []string) map[int]string {
	found := map[int]string{}
	for i := range n.entries {
		e := &n.entries[i]
		if given[i] != e.name() && len(given[i]) > validation.LabelValueMaxLength {
			found[i] = fmt.Sprintf("its NodePool would be called %s, because another pool is called %s, too, and that is longer than %d "+
				"characters: give each pool of the tenant a name of its own", given[i], e.name(), validation.LabelValueMaxLength)
		}
		first := slices.Index(given[:i], given[i])
		if first < 0 {
			continue
		}
		if other := &n.entries[first]; other.name() == e.name() {
			found[i] = fmt.Sprintf("the name %q is that of %s already: give each %s pool of the tenant a name of its own", e.name(), other.where,
				e.kind())
		} else {
			for index, rival := range map[int]*entry{i: other, first: e} {
				found[index] = fmt.Sprintf("its NodePool would be called %s, and so would that of %s, because a static and a dynamic pool have "+
					"the same name: give each pool of the tenant a name of its own", given[i], rival.where)
			}
		}
	}
	return found
}

// renamed says which pools have another name in the tenant.
func renamed(pools []pool) []string {
	return lo.FilterMap(pools, func(p pool, _ int) (string, bool) {
		return fmt.Sprintf("%s is NodePool %s", p.where, p.name()), p.problem == "" && p.name() != p.entry.name()
	})
}
