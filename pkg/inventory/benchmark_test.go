// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const benchmarkTypes = 100

// benchmarkHost is of one of the types, in a rack of 20, with an NVLink domain to each rack and ten racks to each zone.
func benchmarkHost(n int) *bmov1alpha1.BareMetalHost {
	return available(fmt.Sprintf("server-%05d", n), map[string]string{
		"kind": fmt.Sprintf("type-%03d", n%benchmarkTypes), "rack": fmt.Sprintf("r%04d", n/20), "nvlink-domain": fmt.Sprintf("n%04d", n/20),
		"datacenter": fmt.Sprintf("dc%d", n/200%4),
	})
}

func benchmarkInventory(hosts int) *Inventory {
	inventory := NewInventory(Options{})
	for n := range benchmarkTypes {
		added := profile(fmt.Sprintf("type-%03d", n), int64(n), list("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", fmt.Sprint(1+n/13)))
		added.Exclusive = []string{v1alpha1.NVLinkDomainLabelKey}
		inventory.SetType(added)
	}
	for n := range hosts {
		inventory.SetHost(benchmarkHost(n))
	}
	return inventory
}

func sizes(b *testing.B, run func(b *testing.B, hosts int)) {
	for _, hosts := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("types=%d/hosts=%d", benchmarkTypes, hosts), func(b *testing.B) { run(b, hosts) })
	}
}

func benchmarkRequests() map[string]Request {
	return map[string]Request{
		"resources": {Machine: "m", Resources: list("cpu", "8", "nvidia.com/gpu", "8")},
		"zone": {Machine: "m", Resources: list("cpu", "8", "nvidia.com/gpu", "8"),
			Requirements: []corev1.NodeSelectorRequirement{in(corev1.LabelTopologyZone, "dc3")}},
		"rack": {Machine: "m", Resources: list("cpu", "8", "nvidia.com/gpu", "8"),
			Requirements: []corev1.NodeSelectorRequirement{in("rack", "r0049")}},
		"named":  {Machine: "m", NodeType: "type-050"},
		"pinned": {Machine: "m", NodeType: "type-050", ServerName: "server-00050"},
	}
}

// TestAllocations: a choice allocates for the types that it compares and for its result, and nothing for each host.
func TestAllocations(t *testing.T) {
	allocations := func(hosts int, request Request) float64 {
		inventory := benchmarkInventory(hosts)
		return testing.AllocsPerRun(10, func() {
			choice, err := inventory.give(request)
			if err != nil {
				t.Fatal(err)
			}
			inventory.Forget(types.NamespacedName{Namespace: choice.Host.Namespace, Name: choice.Host.Name}, "m")
		})
	}
	for name, request := range benchmarkRequests() {
		few, many := allocations(1000, request), allocations(10000, request)
		if most := 3.0 * benchmarkTypes; few > most || many > most || many > 2*few {
			t.Errorf("%s: %.0f allocations for 1000 hosts and %.0f for 10000, want at most %.0f, and at most twice as many for ten times the hosts",
				name, few, many, most)
		}
	}
}

// BenchmarkChoose chooses a host and releases it.
func BenchmarkChoose(b *testing.B) {
	for name, request := range benchmarkRequests() {
		b.Run(name, func(b *testing.B) {
			sizes(b, func(b *testing.B, hosts int) {
				inventory := benchmarkInventory(hosts)
				b.ReportAllocs()
				for b.Loop() {
					choice, err := inventory.give(request)
					if err != nil {
						b.Fatal(err)
					}
					inventory.Forget(types.NamespacedName{Namespace: choice.Host.Namespace, Name: choice.Host.Name}, "m")
				}
			})
		})
	}
}

// BenchmarkSummary asks for a type's summary after one of its hosts has changed.
func BenchmarkSummary(b *testing.B) {
	sizes(b, func(b *testing.B, hosts int) {
		inventory := benchmarkInventory(hosts)
		free, taken := benchmarkHost(50), claimed(benchmarkHost(50), "type-050")
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			if n%2 == 0 {
				inventory.SetHost(taken)
			} else {
				inventory.SetHost(free)
			}
			if summary, known := inventory.Summary("type-050"); !known || summary.Capacity.Total != int32(hosts/benchmarkTypes) {
				b.Fatalf("wrong summary %+v", summary)
			}
		}
	})
}

// BenchmarkSetHost is what one event of the watch costs.
func BenchmarkSetHost(b *testing.B) {
	sizes(b, func(b *testing.B, hosts int) {
		inventory := benchmarkInventory(hosts)
		echo := benchmarkHost(50)
		b.ReportAllocs()
		for b.Loop() {
			inventory.SetHost(echo)
		}
	})
}

// TestConcurrentUse is for the race detector: watch, types, claims and summaries at once.
func TestConcurrentUse(t *testing.T) {
	inventory := benchmarkInventory(200)
	inventory.OnChange(func(names []string) {
		for _, name := range names {
			inventory.Summary(name)
		}
	})
	var lock sync.Mutex
	owners := map[string]types.UID{}
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for n := range 50 {
				inventory.SetHost(benchmarkHost(200 + worker)) // hosts that fit no request
				machine := types.UID(fmt.Sprintf("m-%d-%d", worker, n))
				choice, err := inventory.give(Request{Machine: machine, Tenant: "acme", NodeType: fmt.Sprintf("type-%03d", 10+n%5)})
				if err != nil {
					continue
				}
				lock.Lock()
				if owner, taken := owners[choice.Host.Name]; taken {
					t.Errorf("%s is given to %s and to %s", choice.Host.Name, owner, machine)
				}
				owners[choice.Host.Name] = machine
				lock.Unlock()
			}
		})
	}
	workers.Wait()
	if len(owners) != 10 {
		t.Errorf("%d hosts were given, want the 10 that the types have", len(owners))
	}
}
