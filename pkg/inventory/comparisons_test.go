// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// costly are a hundred requirements that each server meets but the last, or one that none meets.
func costly(last corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	var all []corev1.NodeSelectorRequirement
	for n := range 99 {
		requirement := corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpNotIn}
		if n%3 == 0 {
			requirement.Key = fmt.Sprintf("type.karpenter.metal3.io/none-%02d", n)
		}
		for value := range 20 {
			requirement.Values = append(requirement.Values, fmt.Sprintf("none-%02d-%02d", n, value))
		}
		all = append(all, requirement)
	}
	return append(all, last)
}

// TestEachValueIsComparedOnce: however many servers and requirements there are, the requirements of one label are
// compared once with each of its values, and those of a label that few servers have come first. All of it is done
// under the lock of the inventory, and a request that writes nothing may repeat it as often as it likes.
func TestEachValueIsComparedOnce(t *testing.T) {
	const hosts, racks, sets = 1000, 50, benchmarkTypes
	inventory := benchmarkInventory(hosts)
	for name, tc := range map[string]struct {
		reason string
		last   corev1.NodeSelectorRequirement
		first  string
		most   map[string]int
	}{
		"In": {"it rules out all servers, so nothing else is looked at", in("datacenter", "none"), "datacenter",
			map[string]int{"datacenter": 4, "rack": 0, "": 0}},
		"NotIn": {"each server meets all but this", corev1.NodeSelectorRequirement{Key: "datacenter",
			Operator: corev1.NodeSelectorOpNotIn, Values: []string{"dc0", "dc1", "dc2", "dc3"}}, "",
			map[string]int{"datacenter": 4, "rack": racks, "": sets}},
	} {
		t.Run(name, func(t *testing.T) {
			request := Request{Resources: list("nvidia.com/gpu", "1"), Requirements: costly(tc.last)}
			parsed, err := inventory.parse(request.Requirements)
			if err != nil {
				t.Fatal(err)
			}
			var none *NoHostError
			inventory.update(func(changed changed) { _, err = inventory.choose(request, parsed, changed) })
			if !errors.As(err, &none) {
				t.Fatalf("got %v", err)
			}
			if len(parsed.ofHost) != len(tc.most) || parsed.ofHost[0].key != tc.first {
				t.Errorf("%d labels are compared, %q first: %s", len(parsed.ofHost), parsed.ofHost[0].key, tc.reason)
			}
			for _, about := range parsed.ofHost {
				if len(about.unmet) > tc.most[about.key] {
					t.Errorf("%q is compared %d times, want at most %d: %s", about.key, len(about.unmet), tc.most[about.key],
						tc.reason)
				}
			}
		})
	}
}

// BenchmarkRefuse has a costly request refused, for which all servers are looked at.
func BenchmarkRefuse(b *testing.B) {
	sizes(b, func(b *testing.B, hosts int) {
		inventory := benchmarkInventory(hosts)
		request := Request{Resources: list("nvidia.com/gpu", "1"), Requirements: costly(in("datacenter", "none"))}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := inventory.Choose(request); err == nil {
				b.Fatal("a server fits")
			}
		}
	})
}
