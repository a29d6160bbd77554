// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestInstanceLabels(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		resources := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return resources
	}
	gpus := func(driver, product, memory string, count int32) v1alpha1.NodeTypeDevice {
		device := v1alpha1.NodeTypeDevice{Driver: driver, Count: count}
		if product != "" {
			device.Attributes = map[string]v1alpha1.NodeTypeDeviceAttribute{"productName": {String: ptr.To(product)}}
			device.Capacity = map[string]resource.Quantity{"memory": resource.MustParse(memory)}
		}
		return device
	}
	part := func(device v1alpha1.NodeTypeDevice) v1alpha1.NodeTypeDevice {
		device.SharedCounters = []v1alpha1.NodeTypeCounterSet{{Name: "gpu", Count: 8}}
		device.ConsumesCounters = []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu"}}
		return device
	}
	for name, tc := range map[string]struct {
		reason          string
		declared, found corev1.ResourceList
		devices         []v1alpha1.NodeTypeDevice
		want            string
	}{
		"Plain": {reason: "cpus and MiB", declared: list("cpu", "64", "memory", "512Gi"), want: "cpu=64 memory=524288"},
		"Inspected": {reason: "what the type leaves out is known from servers",
			found: list("cpu", "48", "memory", "385000Mi"), want: "cpu=48 memory=385000"},
		"Unknown": {reason: "no server has been inspected", want: ""},
		"NVIDIA": {reason: "the resource names its manufacturer", declared: list("nvidia.com/gpu", "8"),
			want: "gpu-count=8 gpu-manufacturer=nvidia"},
		"Intel": {reason: "Intel has the vendor behind", declared: list("gpu.intel.com/xe", "2"),
			want: "gpu-count=2 gpu-manufacturer=intel"},
		"Slices": {reason: "a slice is no GPU, a network card neither", declared: list("nvidia.com/mig-1g.10gb", "7", "rdma/hca", "4"), want: ""},
		"Driver": {reason: "a DRA driver says more", devices: []v1alpha1.NodeTypeDevice{
			gpus("gpu.nvidia.com", "NVIDIA H100 80GB HBM3", "81559Mi", 8), {Driver: "dra.net", Count: 8}},
			want: "gpu-count=8 gpu-manufacturer=nvidia gpu-memory=81559 gpu-name=nvidia-h100-80gb-hbm3"},
		"Partitions": {reason: "a GPU and its slices are one, and as big as the whole", devices: []v1alpha1.NodeTypeDevice{
			part(gpus("gpu.nvidia.com", "", "10Gi", 56)), part(gpus("gpu.nvidia.com", "H100", "80Gi", 8)),
			part(gpus("gpu.nvidia.com", "H100", "40Gi", 16))},
			want: "gpu-count=8 gpu-manufacturer=nvidia gpu-memory=81920 gpu-name=h100"},
		"Both": {reason: "the same cards in two ways count once", declared: list("nvidia.com/gpu", "8"),
			devices: []v1alpha1.NodeTypeDevice{gpus("gpu.nvidia.com", "", "", 8)}, want: "gpu-count=8 gpu-manufacturer=nvidia"},
		"Mixed": {reason: "a label has one value", devices: []v1alpha1.NodeTypeDevice{
			gpus("gpu.nvidia.com", "A", "40Gi", 2), gpus("gpu.amd.com", "B", "80Gi", 2)}, want: "gpu-count=4"},
		"LongName": {reason: "no label has such a value", devices: []v1alpha1.NodeTypeDevice{
			gpus("gpu.example.com", strings.Repeat("gpu", 30), "1Gi", 1)}, want: "gpu-count=1 gpu-manufacturer=example gpu-memory=1024"},
	} {
		t.Run(name, func(t *testing.T) {
			nodeType := &v1alpha1.NodeType{}
			nodeType.Spec.Resources, nodeType.Spec.Devices, nodeType.Status.Resources = tc.declared, tc.devices, tc.found
			want := map[string]string{}
			for _, pair := range strings.Fields(tc.want) {
				key, value, _ := strings.Cut(pair, "=")
				want[v1alpha1.Group+"/instance-"+key] = value
			}
			if diff := cmp.Diff(want, InstanceLabels(nodeType)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
