// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestResourceSlicesFormCompletePools(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid"}}
	drivers := devices.Expand([]v1alpha1.NodeTypeDevice{
		{Driver: "gpu.example.com", Count: 128, PCIeRoots: []string{"a"}}, {Driver: "gpu.example.com", Count: 2},
		{Driver: "nic.example.com", Count: 1},
		{Driver: "mig.example.com", Count: 72, SharedCounters: []v1alpha1.NodeTypeCounterSet{{Name: "gpu", Count: 9}},
			ConsumesCounters: []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu"}}},
	})
	names := map[string]bool{}
	for n, want := range [][]int{{128, 2}, {1}, {64, 8, 0, 0}} {
		slices := slicesOf(node, drivers[n])
		if len(slices) != len(want) {
			t.Fatalf("%s has %d slices, want %d: the API takes no more than 128 devices in one, or 64 with counters, or 8 sets",
				drivers[n].Name, len(slices), len(want))
		}
		for i, slice := range slices {
			if len(slice.Spec.Devices) != want[i] || slice.Spec.Pool.ResourceSliceCount != int64(len(want)) || slice.Spec.Pool.Name != "n1" {
				t.Errorf("slice %s has %d devices of pool %v, want %d of one with %d slices", slice.Name, len(slice.Spec.Devices),
					slice.Spec.Pool,
					want[i], len(want))
			}
			if *slice.Spec.NodeName != "n1" || slice.OwnerReferences[0].UID != "uid" {
				t.Errorf("slice %s does not belong to its Node", slice.Name)
			}
			if names[slice.Name] {
				t.Errorf("two slices have the name %s", slice.Name)
			}
			names[slice.Name] = true
		}
	}
	first := slicesOf(node, drivers[0])[0].Spec.Devices[0]
	if got := first.Attributes[devices.PCIeRoot].StringValue; got == nil || *got != "a" {
		t.Errorf("the root of a device is published as %v, want a", got)
	}
}

// An API server takes what the emulated driver publishes: shared GPUs, and GPUs with their slices.
func TestAPIServerTakesSharedAndPartitionedDevices(t *testing.T) {
	e := env.NewEnvironment(t)
	amount := func(value string) map[string]resource.Quantity {
		return map[string]resource.Quantity{"memory": resource.MustParse(value)}
	}
	consumes := func(value string) []v1alpha1.NodeTypeCounterConsumption {
		return []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu", Counters: amount(value)}}
	}
	groups := []v1alpha1.NodeTypeDevice{
		{Driver: "mig.example.com", Count: 9, Capacity: amount("80Gi"), ConsumesCounters: consumes("80Gi"),
			SharedCounters: []v1alpha1.NodeTypeCounterSet{{Name: "gpu", Count: 9, Counters: amount("80Gi")}}},
		{Driver: "mig.example.com", Count: 63, Capacity: amount("10Gi"), ConsumesCounters: consumes("10Gi")},
		{Driver: "gpu.example.com", Count: 8, Capacity: amount("80Gi"), AllowMultipleAllocations: true,
			RequestPolicies: map[string]resourcev1.CapacityRequestPolicy{"memory": {Default: ptr.To(resource.MustParse("1Gi")),
				ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: ptr.To(resource.MustParse("1Gi"))}}}},
	}
	if err := devices.Validate(field.NewPath("devices"), groups).ToAggregate(); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid"}}
	for _, driver := range devices.Expand(groups) {
		for _, slice := range slicesOf(node, driver) {
			want := slice.DeepCopy()
			if err := e.Client.Create(t.Context(), slice); err != nil {
				t.Fatal(err)
			}
			// Fields of a feature that is off are dropped without an error.
			if !equality.Semantic.DeepEqual(want.Spec, slice.Spec) {
				t.Errorf("slice %s is stored as %+v, want %+v", slice.Name, slice.Spec, want.Spec)
			}
		}
	}
}
