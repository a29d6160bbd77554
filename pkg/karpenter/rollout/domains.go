// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// nvlinkDomain identifies the nodes of a NodePool in one NVLink domain, or in none.
type nvlinkDomain struct{ nodePool, value string }

func domainOf(node *state.StateNode) nvlinkDomain {
	labels := node.Labels()
	return nvlinkDomain{nodePool: labels[karpv1.NodePoolLabelKey], value: labels[v1alpha1.NVLinkDomainLabelKey]}
}

// byDomain groups candidates by NVLink domain. The nodes of one domain are replaced before the nodes of the next, so a
// job that has a whole domain is interrupted in one domain at a time. Domains that have begun come first: one of their
// nodes no longer drifts, or is on its way. Then come the domains with the fewest drifted nodes, including nodes that
// cannot be disrupted now. nodes are all nodes that core knows.
func byDomain(candidates []*disruption.Candidate, nodes iter.Seq[*state.StateNode]) [][]*disruption.Candidate {
	groups := lo.GroupBy(candidates, func(candidate *disruption.Candidate) nvlinkDomain { return domainOf(candidate.StateNode) })
	if len(groups) < 2 {
		return slices.Collect(maps.Values(groups))
	}
	begun, drifted := map[nvlinkDomain]int{}, map[nvlinkDomain]int{}
	for node := range nodes {
		switch {
		case node.NodeClaim == nil:
		case node.MarkedForDeletion(), !node.NodeClaim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue():
			begun[domainOf(node)] = -1
		default:
			drifted[domainOf(node)]++
		}
	}
	return lo.Map(slices.SortedFunc(maps.Keys(groups), func(a, b nvlinkDomain) int {
		return cmp.Or(cmp.Compare(begun[a], begun[b]), cmp.Compare(drifted[a], drifted[b]), cmp.Compare(a.value, b.value),
			cmp.Compare(a.nodePool, b.nodePool))
	}), func(domain nvlinkDomain, _ int) []*disruption.Candidate { return groups[domain] })
}
