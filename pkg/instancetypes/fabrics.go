// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"slices"
	"strings"

	"github.com/samber/lo"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// withhold counts the free servers as claimed in domains that a tenant holds, if the tenant with the owned labels has
// no server there. It returns nil if there are none, and else names these domains. If nodes do not inherit the label of
// a domain, any tenant with a server may hold it: if another does, the manager refuses the Machine.
func withhold(original *v1alpha1.NodeType, owned map[string]bool) (changed *v1alpha1.NodeType, closed []string) {
	moved := map[string]int32{}
	for i, domain := range original.Status.Domains {
		for _, key := range domain.Held {
			if owned[labelOf(key, domain.Labels)] || domain.Available == 0 {
				continue
			}
			closed = append(closed, strings.TrimSpace(key+" "+domain.Labels[key]))
			if changed == nil {
				changed = original.DeepCopy()
			}
			taken := &changed.Status.Domains[i].Capacity
			moved[domain.Zone] += taken.Available
			taken.Claimed, taken.Available = taken.Claimed+taken.Available, 0
		}
	}
	if changed == nil {
		return nil, nil
	}
	left, inZone := int32(0), map[string]int32{}
	for _, domain := range changed.Status.Domains {
		left, inZone[domain.Zone] = left+domain.Available, inZone[domain.Zone]+domain.Available
	}
	status := &changed.Status
	for i := range status.Zones {
		zone := &status.Zones[i]
		zone.Claimed, zone.Available = zone.Claimed+moved[zone.Name], min(zone.Available, inZone[zone.Name])
		status.Capacity.Claimed += moved[zone.Name]
	}
	status.Capacity.Available = min(status.Capacity.Available, left)
	slices.Sort(closed)
	return changed, slices.Compact(closed)
}

func labelOf(key string, labels map[string]string) string { return key + "=" + labels[key] }

// ownedBy returns the labels of the servers that Machines have, as far as tenants hold domains by them.
func ownedBy(machines []*v1alpha1.Machine, nodeTypes ...*v1alpha1.NodeType) map[string]bool {
	held, owned := map[string]bool{}, map[string]bool{}
	for _, nodeType := range nodeTypes {
		for _, domain := range nodeType.Status.Domains {
			for _, key := range domain.Held {
				held[key] = true
			}
		}
	}
	for _, machine := range machines {
		for key := range held {
			if machine.Status.ProviderID != "" {
				owned[labelOf(key, machine.Status.NodeLabels)] = true
			}
		}
	}
	return owned
}

// OpenTo returns the NodeTypes as the tenant with the Machines may use them: free servers in domains of other tenants
// count as claimed. closed names these domains. The given NodeTypes do not change.
func OpenTo(machines []v1alpha1.Machine, nodeTypes []v1alpha1.NodeType) (open []v1alpha1.NodeType, closed []string) {
	owned := ownedBy(lo.ToSlicePtr(machines), lo.ToSlicePtr(nodeTypes)...)
	open = slices.Clone(nodeTypes)
	for i := range open {
		if changed, domains := withhold(&open[i], owned); changed != nil {
			open[i], closed = *changed, append(closed, domains...)
		}
	}
	slices.Sort(closed)
	return open, slices.Compact(closed)
}
