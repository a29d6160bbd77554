// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
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
