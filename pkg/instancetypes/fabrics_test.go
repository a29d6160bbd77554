// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestDomainsOfOthers: what is free in a domain that another tenant has is offered to that tenant only, and the others are told why.
func TestDomainsOfOthers(t *testing.T) {
	held := func(key, name string, available int32) v1alpha1.DomainCapacity {
		domain := rack(name, available)
		domain.Held = []string{key}
		return domain
	}
	serving := func(labels ...map[string]string) (machines []v1alpha1.Machine) {
		for n := range labels {
			machine := v1alpha1.Machine{Status: v1alpha1.MachineStatus{ProviderID: "metal3://a", NodeLabels: labels[n]}}
			machine.Name = fmt.Sprint(n)
			machines = append(machines, machine)
		}
		return machines
	}
	pending := serving(map[string]string{"rack": "r1"})
	pending[0].Status.ProviderID = ""
	inR1 := map[string]string{"rack": "r1"}
	for name, tc := range map[string]struct {
		reason   string
		domains  []v1alpha1.DomainCapacity
		limit    int32
		machines []v1alpha1.Machine
		// want are the servers that are left in all, and by domain.
		want   []int32
		closed []string
	}{
		"nobody's": {reason: "the first gets it", domains: []v1alpha1.DomainCapacity{rack("r1", 3), rack("r2", 2)}, want: []int32{5, 3, 2}},
		"another's": {reason: "what is free there is not for this tenant",
			domains: []v1alpha1.DomainCapacity{held("rack", "r1", 3), rack("r2", 2)}, want: []int32{2, 0, 2}, closed: []string{"rack r1"}},
		"its own": {reason: "it has a server there", machines: serving(inR1),
			domains: []v1alpha1.DomainCapacity{held("rack", "r1", 3), rack("r2", 2)}, want: []int32{5, 3, 2}},
		"own and another's": {reason: "each counts by itself", machines: serving(inR1),
			domains: []v1alpha1.DomainCapacity{held("rack", "r1", 3), held("rack", "r2", 2)}, want: []int32{3, 3, 0}, closed: []string{"rack r2"}},
		"no server yet": {reason: "a Machine that waits may get one elsewhere", machines: pending,
			domains: []v1alpha1.DomainCapacity{held("rack", "r1", 3)}, want: []int32{0, 0}, closed: []string{"rack r1"}},
		"hidden, new": {reason: "nodes do not say in which fabric they are, and a tenant without nodes has none",
			domains: []v1alpha1.DomainCapacity{held("fabric", "r1", 3), rack("r1", 1)}, want: []int32{1, 0, 1}, closed: []string{"fabric"}},
		"hidden, known": {reason: "it may be that of its nodes: the manager decides", machines: serving(inR1),
			domains: []v1alpha1.DomainCapacity{held("fabric", "r1", 3), rack("r1", 1)}, want: []int32{4, 3, 1}},
		"maxCapacity": {reason: "no more than the type may have", limit: 2,
			domains: []v1alpha1.DomainCapacity{held("rack", "r1", 3), rack("r2", 3)}, want: []int32{2, 0, 2}, closed: []string{"rack r1"}},
		"full": {reason: "nothing is kept from anybody", domains: []v1alpha1.DomainCapacity{held("rack", "r1", 0)}, want: []int32{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			original := withDomains(tc.domains...)
			if tc.limit > 0 {
				original = limited(tc.limit, original)
			}
			before := original.DeepCopy()
			open, closed := OpenTo(tc.machines, []v1alpha1.NodeType{*original})
			status := open[0].Status
			got, total := []int32{status.Capacity.Available}, before.Status.Capacity.Claimed
			for i, domain := range status.Domains {
				got = append(got, domain.Available)
				if was := before.Status.Domains[i]; domain.Claimed+domain.Available != was.Claimed+was.Available {
					t.Errorf("servers of domain %d are counted twice or not at all: %+v, before %+v", i, domain, was)
				}
				total += domain.Claimed
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: free in all, and by domain (-want +got):\n%s", tc.reason, diff)
			}
			if status.Capacity.Claimed != total || status.Zones[0].Claimed != total || status.Zones[0].Available != status.Capacity.Available {
				t.Errorf("the sums differ: %+v, zones %+v, want %d claimed", status.Capacity, status.Zones, total)
			}
			if diff := cmp.Diff(tc.closed, closed); diff != "" {
				t.Errorf("%s: closed domains (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, original); diff != "" {
				t.Errorf("the NodeType was changed:\n%s", diff)
			}

			// Karpenter is offered the same.
			catalog := NewCatalog(DefaultPods)
			catalog.Set(original)
			var machines []*v1alpha1.Machine
			for i := range tc.machines {
				if tc.machines[i].Status.ProviderID != "" {
					machines = append(machines, &tc.machines[i])
				}
			}
			offered := 0
			for range 2 { // the second time from memory
				offered = 0
				for _, instanceType := range catalog.Without(&v1alpha1.TenantCluster{}, machines,
					nil).InstanceTypes(NewFilter(nil, nil)) {
					for _, offering := range instanceType.Offerings.Available() {
						offered += offering.ReservationCapacity
					}
				}
			}
			if offered != int(tc.want[0]) {
				t.Errorf("%s: %d servers are offered, want %d", tc.reason, offered, tc.want[0])
			}
		})
	}
}
