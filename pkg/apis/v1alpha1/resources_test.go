// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func list(pairs ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		resources[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return resources
}

func TestEffectiveCost(t *testing.T) {
	explicit, free := int64(500000), int64(0)
	for name, tc := range map[string]struct {
		reason  string
		profile HardwareProfile
		status  NodeTypeStatus
		want    int64
	}{
		"H100": {
			reason:  "96 x 10 + 768 x 2 + 8 x 10000",
			profile: HardwareProfile{Resources: list("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")},
			want:    82496,
		},
		"A100": {
			reason:  "64 x 10 + 256 x 2 + 4 x 10000",
			profile: HardwareProfile{Resources: list("cpu", "64", "memory", "256Gi", "nvidia.com/gpu", "4")},
			want:    41152,
		},
		"Small": {
			reason:  "the reference shows 28 for it",
			profile: HardwareProfile{Resources: list("cpu", "2", "memory", "4Gi")},
			want:    28,
		},
		"Medium": {
			reason:  "the reference shows 72 for it",
			profile: HardwareProfile{Resources: list("cpu", "4", "memory", "16Gi")},
			want:    72,
		},
		"Fraction": {
			reason:  "100 GB are 93.13 GiB, rounded up",
			profile: HardwareProfile{Resources: list("cpu", "1", "memory", "100G")},
			want:    197,
		},
		"LeftOut": {
			reason:  "what Metal3 has found of what the spec leaves out counts, and nothing else",
			profile: HardwareProfile{Resources: list("nvidia.com/gpu", "8")},
			status:  NodeTypeStatus{Resources: list("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "9", "example.com/x", "1")},
			want:    82496,
		},
		"SpecWins": {
			reason:  "the status has not caught up with the spec",
			profile: HardwareProfile{Resources: list("cpu", "2", "memory", "4Gi")},
			status:  NodeTypeStatus{Resources: list("cpu", "96", "memory", "768Gi")},
			want:    28,
		},
		"Explicit": {
			reason:  "spec.cost wins over what would be computed",
			profile: HardwareProfile{Cost: &explicit, Resources: list("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8")},
			want:    500000,
		},
		"ExplicitZero": {
			reason:  "a cost of zero is a cost, not an unset one",
			profile: HardwareProfile{Cost: &free, Resources: list("cpu", "96", "memory", "768Gi")},
			want:    0,
		},
		"StorageIsNotAnAccelerator": {
			reason:  "bytes of disk at 10000 each would make every server the dearest",
			profile: HardwareProfile{Resources: list("cpu", "1", "memory", "1G", "ephemeral-storage", "1Ti", "pods", "110")},
			want:    12,
		},
		"HugePages": {
			reason:  "they are memory, and are counted as such",
			profile: HardwareProfile{Resources: list("cpu", "1", "memory", "1G", "hugepages-2Mi", "512Mi", "hugepages-1Gi", "64Gi")},
			want:    12,
		},
		"KubeVirt": {
			reason: "a thousand virtual machines at a time are no thousand accelerators",
			profile: HardwareProfile{Resources: list("cpu", "64", "memory", "512Gi", "devices.kubevirt.io/kvm", "1k",
				"devices.kubevirt.io/tun", "1k", "devices.kubevirt.io/vhost-net", "1k")},
			want: 1664,
		},
		"Devices": {
			reason: "8 GPUs of a DRA driver are as dear as those of a device plugin",
			profile: HardwareProfile{Resources: list("cpu", "96", "memory", "768Gi"),
				Devices: []NodeTypeDevice{{Driver: "gpu.nvidia.com", Count: 6}, {Driver: "gpu.nvidia.com", Count: 2}}},
			want: 82496,
		},
		"Partitions": {
			reason: "8 GPUs and the 56 slices that they can be cut into are 8 GPUs",
			profile: HardwareProfile{Resources: list("cpu", "96", "memory", "768Gi"), Devices: []NodeTypeDevice{
				{Driver: "gpu.nvidia.com", Count: 8, SharedCounters: []NodeTypeCounterSet{{Name: "gpu", Count: 8}},
					ConsumesCounters: []NodeTypeCounterConsumption{{CounterSet: "gpu"}}},
				{Driver: "gpu.nvidia.com", Count: 56, ConsumesCounters: []NodeTypeCounterConsumption{{CounterSet: "gpu"}}},
			}},
			want: 82496,
		},
		"PartitionsOfSome": {
			reason: "only two of four GPUs are cut, another driver has a set of the same name, and a network card is no part of a GPU",
			profile: HardwareProfile{Devices: []NodeTypeDevice{
				{Driver: "gpu.nvidia.com", Count: 2},
				{Driver: "gpu.nvidia.com", Count: 14, SharedCounters: []NodeTypeCounterSet{{Name: "gpu", Count: 2}, {Name: "rack"}},
					ConsumesCounters: []NodeTypeCounterConsumption{{CounterSet: "gpu"}, {CounterSet: "rack"}}},
				{Driver: "dra.net", Count: 6, SharedCounters: []NodeTypeCounterSet{{Name: "gpu"}},
					ConsumesCounters: []NodeTypeCounterConsumption{{CounterSet: "gpu"}}},
				{Driver: "dra.net", Count: 1, AllowMultipleAllocations: true},
			}},
			want: 60000,
		},
		"Both": {
			reason: "the same cards, offered in both ways",
			profile: HardwareProfile{Resources: list("cpu", "96", "memory", "768Gi", "nvidia.com/gpu", "8"),
				Devices: []NodeTypeDevice{{Driver: "gpu.nvidia.com", Count: 8}}},
			want: 82496,
		},
		"Absurd": {
			reason:  "the cost never overflows",
			profile: HardwareProfile{Resources: list("cpu", "1", "memory", "1G", "example.com/x", "9223372036854775807")},
			want:    1e12,
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodeType := &NodeType{Spec: NodeTypeSpec{HardwareProfile: tc.profile}, Status: tc.status}
			if diff := cmp.Diff(tc.want, nodeType.EffectiveCost()); diff != "" {
				t.Errorf("%s: EffectiveCost (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIsAccelerator(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		names  []corev1.ResourceName
		want   bool
	}{
		"GPUs": {"whole, shared and parts", []corev1.ResourceName{"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb",
			"amd.com/gpu", "amd.com/gpu_vf", "gpu.intel.com/i915", "nvidia.com/GA102GL_A10"}, true},
		"Others": {"of any vendor, and what nobody knows", []corev1.ResourceName{"habana.ai/gaudi", "google.com/tpu", "aws.amazon.com/neuron",
			"huawei.com/Ascend910", "xilinx.com/fpga-u30", "qat.intel.com/cy", "example.com/fortune", "example.com/x"}, true},
		"KubeVirt": {"each server has them", []corev1.ResourceName{"devices.kubevirt.io/kvm", "devices.kubevirt.io/tun",
			"devices.kubevirt.io/vhost-net", "devices.kubevirt.io/sev"}, false},
		"Files": {"a device of the kernel", []corev1.ResourceName{"smarter-devices/fuse", "github.com/fuse", "squat.ai/fuse"}, false},
		"Networks": {"cards and their functions", []corev1.ResourceName{"intel.com/intel_sriov_netdevice", "openshift.io/dpdk_nic",
			"nvidia.com/hostdev", "nvidia.com/mlnxnics", "rdma/hca_shared_devices_a", "vpc.amazonaws.com/pod-eni"}, false},
		"Kubernetes": {"each server has them", []corev1.ResourceName{"cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "nodes"},
			false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, resource := range tc.names {
				if got := IsAccelerator(resource); got != tc.want {
					t.Errorf("%s: %s: got %v, want %v", tc.reason, resource, got, tc.want)
				}
			}
		})
	}
}

func TestAsksForAccelerator(t *testing.T) {
	for name, tc := range map[string]struct {
		reason             string
		requested, offered corev1.ResourceList
		want               bool
	}{
		"GPU":         {"asks for what is there", list("nvidia.com/gpu", "1"), list("cpu", "1", "nvidia.com/gpu", "8"), true},
		"CPUOnly":     {"asks for none", list("cpu", "1"), list("cpu", "1", "nvidia.com/gpu", "8"), false},
		"OtherVendor": {"asks for another vendor's", list("amd.com/gpu", "1"), list("nvidia.com/gpu", "8"), false},
		"Zero":        {"asking for zero is not asking", list("nvidia.com/gpu", "0"), list("nvidia.com/gpu", "8"), false},
		"MIG":         {"MIG profiles are accelerators by name", list("nvidia.com/mig-1g.10gb", "1"), list("nvidia.com/mig-1g.10gb", "7"), true},
		"HugePages":   {"huge pages are memory, not an accelerator", list("hugepages-2Mi", "1Gi"), list("hugepages-2Mi", "1Gi"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := AsksForAccelerator(tc.requested, tc.offered); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestParseProviderID(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, id string
		want       bool
	}{
		"Ours":    {"what ProviderID makes", ProviderID("metal3-system", "server-01", "pool-x7f2k"), true},
		"Foreign": {"a node of another provider", "kwok://server-01", false},
		"Short":   {"without a machine it would be the host's, not the claim's", "metal3://ns/host", false},
		"Long":    {"no part may hold a slash", "metal3://ns/host/machine/more", false},
		"Hollow":  {"no part may be empty", "metal3://ns//machine", false},
		"Empty":   {"a node without one", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, _, got := ParseProviderID(tc.id); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
