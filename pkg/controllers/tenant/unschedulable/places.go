// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package unschedulable

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// capacityFor counts the servers of a type in the topology domains that the selector accepts. Where names these domains,
// such as " in rack r1". It is empty if they have all servers of the type.
func capacityFor(nodeType *v1alpha1.NodeType, offered matching.Offered, s selector) (capacity v1alpha1.Capacity, where string) {
	domains := domainsOf(nodeType)
	varying := map[string][]string{corev1.LabelTopologyZone: nil}
	for _, domain := range domains {
		for key := range domain.Labels {
			varying[key] = nil
		}
	}
	var accepted int
	var names []string
	for _, domain := range domains {
		// Here each of these labels has one value, or none.
		here := maps.Clone(offered)
		maps.DeleteFunc(here, func(key string, _ []string) bool { _, varies := varying[key]; return varies })
		here[corev1.LabelTopologyZone] = []string{domain.Zone}
		for key, value := range domain.Labels {
			here[key] = []string{value}
		}
		if len(s.unmet(here)) > 0 {
			continue
		}
		accepted++
		capacity = plus(capacity, domain.Capacity)
		if name := s.nameOf(domain); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	whole := nodeType.Status.Capacity
	switch {
	case accepted == len(domains), accepted > 0 && capacity.Total == whole.Total && capacity.Claimed == whole.Claimed:
		return whole, ""
	case accepted == 0:
		return capacity, " nodeSelector/affinity as a whole"
	}
	slices.Sort(names)
	if len(names) > listed {
		names = append(names[:listed], "...")
	}
	return capacity, " in " + strings.Join(names, ", ")
}

// domainsOf are the topology domains of a type: its zones, if its servers have no topology labels.
func domainsOf(nodeType *v1alpha1.NodeType) []v1alpha1.DomainCapacity {
	if len(nodeType.Status.Domains) > 0 {
		return nodeType.Status.Domains
	}
	domains := make([]v1alpha1.DomainCapacity, len(nodeType.Status.Zones))
	for i, zone := range nodeType.Status.Zones {
		domains[i] = v1alpha1.DomainCapacity{Zone: zone.Name, Capacity: zone.Capacity}
	}
	return domains
}

// nameOf names a domain by those of its labels that the selector mentions: "rack r1". A zone is named without its label.
func (s selector) nameOf(domain v1alpha1.DomainCapacity) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(domain.Labels)) {
		if s.names(key) {
			parts = append(parts, key+" "+domain.Labels[key])
		}
	}
	if s.names(corev1.LabelTopologyZone) {
		parts = append(parts, domain.Zone)
	}
	return strings.Join(parts, " ")
}

func plus(a, b v1alpha1.Capacity) v1alpha1.Capacity {
	return v1alpha1.Capacity{
		Total: a.Total + b.Total, Claimed: a.Claimed + b.Claimed, Available: a.Available + b.Available, Error: a.Error + b.Error,
		Quarantined: a.Quarantined + b.Quarantined, TooSmall: a.TooSmall + b.TooSmall,
	}
}
