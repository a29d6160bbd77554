// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// publish returns what drivers publish for the devices of a NodeType, each with a UUID of its own.
func publish(groups []v1alpha1.NodeTypeDevice) (published []resourcev1.ResourceSlice) {
	for _, driver := range devices.Expand(groups) {
		spec := resourcev1.ResourceSliceSpec{Driver: driver.Name, NodeName: ptr.To("n1"),
			Pool: resourcev1.ResourcePool{Name: "n1", Generation: 2}}
		for _, device := range driver.Devices {
			device.Attributes["uuid"] = resourcev1.DeviceAttribute{StringValue: ptr.To("GPU-" + device.Name)}
			if device.Root != "" {
				device.Attributes[devices.PCIeRoot] = resourcev1.DeviceAttribute{StringValue: &device.Root}
			}
			entry := resourcev1.Device{Name: device.Name, Attributes: device.Attributes, Capacity: device.Capacity,
				ConsumesCounters: device.ConsumesCounters}
			if device.Shared {
				entry.AllowMultipleAllocations = ptr.To(true)
			}
			spec.Devices = append(spec.Devices, entry)
		}
		counters := spec
		counters.Devices, counters.SharedCounters = nil, driver.CounterSets
		old := spec
		old.Pool.Generation = 1
		published = append(published, resourcev1.ResourceSlice{Spec: old}, resourcev1.ResourceSlice{Spec: counters},
			resourcev1.ResourceSlice{Spec: spec})
	}
	return published
}

// TestProposedDevices: the published devices of a NodeType give the same entries again.
func TestProposedDevices(t *testing.T) {
	const whole = "{driver: gpu.example.com, count: 8, attributes: {type: {string: gpu}}, capacity: {memory: 80Gi}, " +
		"sharedCounters: [{name: gpu, count: 8, counters: {memory: 80Gi, slices: 7}}], " +
		"consumesCounters: [{counterSet: gpu, counters: {memory: 80Gi, slices: 7}}]}"
	for name, tc := range map[string]struct {
		reason, devices, want string
	}{
		"Plain": {reason: "GPUs and cards at four roots", devices: "[{driver: gpu.example.com, count: 8, attributes: {driverVersion: {version: " +
			"570.1.0}, ecc: {bool: true}}, capacity: {memory: 80Gi}, pcieRoots: [a, b, c, d]}, " +
			"{driver: nic.example.com, count: 2, pcieRoots: [a, b]}]"},
		"Shared": {reason: "policies are copied", devices: "[{driver: gpu.example.com, count: 4, allowMultipleAllocations: true, capacity: " +
			"{memory: 80Gi, cores: 100}, requestPolicies: {memory: {default: 1Gi, validRange: {min: 1Gi, step: 1Gi}}, cores: {default: 10, " +
			"validValues: [10, 50]}}}]"},
		"Partitioned": {reason: "slices are dealt out to the GPUs", devices: "[" + whole + ", {driver: gpu.example.com, count: 56, attributes: " +
			"{type: {string: mig}, profile: {string: 1g.10gb}}, capacity: {memory: 10Gi}, consumesCounters: [{counterSet: gpu, counters: " +
			"{memory: 10Gi, slices: 1}}]}]"},
		"TwoSets": {reason: "all boards have one power supply", devices: "[{driver: gpu.example.com, count: 4, sharedCounters: [{name: gpu, " +
			"count: 2, counters: {slices: 7}}, {name: power, count: 1, counters: {watts: 1000}}], consumesCounters: [{counterSet: gpu, counters: " +
			"{slices: 3}}, {counterSet: power, counters: {watts: 100}}]}]"},
		"Uneven": {reason: "one GPU has a slice less: each has a set of its own",
			devices: "[{driver: gpu.example.com, count: 3, sharedCounters: " +
				"[{name: gpu, count: 2, counters: {slices: 7}}], consumesCounters: [{counterSet: gpu, counters: {slices: 1}}]}, " +
				"{driver: gpu.example.com, count: 1, consumesCounters: [{counterSet: gpu, counters: {slices: 1}}]}]",
			want: "[{driver: gpu.example.com, count: 3, sharedCounters: [{name: gpu, count: 1, counters: {slices: 7}}, {name: gpu-2, count: 1, " +
				"counters: {slices: 7}}], consumesCounters: [{counterSet: gpu, counters: {slices: 1}}]}, {driver: gpu.example.com, count: 1, " +
				"consumesCounters: [{counterSet: gpu-2, counters: {slices: 1}}]}]"},
	} {
		t.Run(name, func(t *testing.T) {
			before := entries(t, tc.devices)
			want := before
			if tc.want != "" {
				want = entries(t, tc.want)
			}
			got, err := ProposedDevices(publish(before))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(asYAML(t, want), asYAML(t, got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func entries(t *testing.T, text string) (read []v1alpha1.NodeTypeDevice) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

func asYAML(t *testing.T, value any) string {
	t.Helper()
	content, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestProposedDevicesOfOneNode(t *testing.T) {
	slice := func(node string) resourcev1.ResourceSlice {
		slice := resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{Driver: "d"}}
		slice.Spec.Pool.Name = node
		if node != "" {
			slice.Spec.NodeName = &node
		}
		return slice
	}
	for nodes, want := range map[string]string{"": "no ResourceSlice is of a node",
		"b a": "of the nodes a, b: choose one by --field-selector"} {
		var published []resourcev1.ResourceSlice
		for _, node := range strings.Split(nodes, " ") {
			published = append(published, slice(node))
		}
		if _, err := ProposedDevices(published); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("of nodes %q it says %v, want %q", nodes, err, want)
		}
	}
}
