// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The computed cost of a server, as in the reference: per cpu core, per GiB of memory, and per accelerator.
const (
	costPerCPU         = 10
	costPerGiB         = 2
	costPerOther       = 10000
	bytesPerGiB        = 1 << 30
	maxCost            = int64(1e12)
	hugePagesNamespace = "hugepages-"
)

// ResourceNodes is the number of nodes in the limits of a NodePool.
const ResourceNodes corev1.ResourceName = "nodes"

// IsExtended reports whether a resource is extended, of a device plugin or a DRA driver: none of Kubernetes' own.
func IsExtended(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage, corev1.ResourceStorage,
		ResourceNodes:
		return false
	}
	return !strings.HasPrefix(string(name), hugePagesNamespace)
}

// plainDomains and plainWords in the name of a device, before and after the slash, show that it is no accelerator.
var (
	plainDomains = []string{"devices.kubevirt.io", "smarter-devices", "rdma"}
	plainWords   = []string{"kvm", "tun", "vhost", "fuse", "sriov", "netdevice", "hostdev", "dpdk", "rdma", "roce", "hca", "eni",
		"nic", "nics", "mlnxnics"}
)

// IsAccelerator reports whether a resource is an accelerator: an extended resource whose name does not say that it is
// for virtual machines, file systems or networks. So plain pods stay off servers with unknown devices.
func IsAccelerator(name corev1.ResourceName) bool {
	domain, device, _ := strings.Cut(string(name), "/")
	if !IsExtended(name) || slices.Contains(plainDomains, domain) {
		return false
	}
	words := strings.FieldsFunc(device, func(r rune) bool { return r == '.' || r == '-' || r == '_' })
	plain := func(word string) bool { return slices.Contains(plainWords, word) }
	return strings.Contains(device, "gpu") || !slices.ContainsFunc(words, plain)
}

// Extended returns the names of the extended resources with a quantity above 0, sorted.
func Extended(resources corev1.ResourceList) []corev1.ResourceName {
	return named(resources, IsExtended)
}

// Accelerators returns the names of the accelerators with a quantity above 0, sorted.
func Accelerators(resources corev1.ResourceList) []corev1.ResourceName {
	return named(resources, IsAccelerator)
}

func named(resources corev1.ResourceList, is func(corev1.ResourceName) bool) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name, quantity := range resources {
		if quantity.Sign() > 0 && is(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// AcceleratorLabel returns the label of a BareMetalHost that shows accelerators, as key=value, by the reference's table
// of labels: gpu-model or gpu-count. It is empty if there is none; gpu-count=0 and gpu-model=none mean no accelerators.
func AcceleratorLabel(labels map[string]string) string {
	for _, key := range []string{"gpu-model", "gpu-count"} {
		if value := labels[key]; value != "" && value != "0" && value != "none" {
			return key + "=" + value
		}
	}
	return ""
}

// AsksForAccelerator reports whether requested holds at least one of the accelerators in offered. A server with
// accelerators is only for claims that request one of them.
func AsksForAccelerator(requested, offered corev1.ResourceList) bool {
	for name, has := range offered {
		if quantity := requested[name]; quantity.Sign() > 0 && has.Sign() > 0 && IsAccelerator(name) {
			return true
		}
	}
	return false
}

// EffectiveCost returns the cost of one server: spec.cost if it is set, otherwise 10 per cpu core, 2 per GiB of memory
// and 10000 per accelerator, of a device plugin or a DRA driver, rounded up and at most 10^12. All servers have disk
// and room for pods, huge pages are part of memory, and other devices, such as KubeVirt's, are free.
func (in *NodeType) EffectiveCost() int64 {
	if in.Spec.Cost != nil {
		return *in.Spec.Cost
	}
	cost := 0.0
	for name, quantity := range in.EffectiveResources() {
		amount := quantity.AsApproximateFloat64()
		switch name {
		case corev1.ResourceCPU:
			cost += amount * costPerCPU
		case corev1.ResourceMemory:
			cost += amount / bytesPerGiB * costPerGiB
		}
	}
	cost += float64(in.Spec.CountAccelerators()) * costPerOther // counted in bytes, they would drown the rest
	return min(int64(math.Ceil(min(cost, float64(maxCost)))), maxCost)
}

// ProviderID returns the provider ID of a Machine on a host: metal3://<host namespace>/<host>/<machine>. It is unique
// to the claim, not to the host, because hosts are used again and Karpenter keys its state by it.
func ProviderID(hostNamespace, host, machine string) string {
	return ProviderIDPrefix + hostNamespace + "/" + host + "/" + machine
}

// ProviderIDPrefix starts every provider ID of this provider.
const ProviderIDPrefix = "metal3://"

// ParseProviderID takes a provider ID apart. It returns false if the ID is not of this provider.
func ParseProviderID(providerID string) (hostNamespace, host, machine string, ok bool) {
	rest, found := strings.CutPrefix(providerID, ProviderIDPrefix)
	parts := strings.Split(rest, "/")
	if !found || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// NodeTypeDevice is a group of like devices that a DRA driver publishes for each server of a type. It tells Karpenter,
// before there is a node, which ResourceClaims a server can serve.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requestPolicies) || size(self.requestPolicies) == 0 || has(self.allowMultipleAllocations) && self.allowMultipleAllocations",message="requestPolicies are for devices that several claims share: set allowMultipleAllocations: true, or remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.requestPolicies) || self.requestPolicies.all(name, has(self.capacity) && name in self.capacity)",message="requestPolicies has a name that capacity does not have: write the same names in both"
// +kubebuilder:validation:XValidation:rule="!has(self.requestPolicies) || self.requestPolicies.all(name, has(self.requestPolicies[name].default))",message="a policy of requestPolicies needs a default: what a claim takes that requests nothing"
type NodeTypeDevice struct {
	// Driver that publishes the devices, by its DNS name: gpu.nvidia.com.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="driver is the DNS name of the DRA driver that publishes the devices, for example gpu.nvidia.com"
	Driver string `json:"driver"`
	// Count of devices in one server.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	Count int32 `json:"count"`
	// Attributes of each device, as the driver publishes them. A key without a domain is in the driver's own domain.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Attributes map[string]NodeTypeDeviceAttribute `json:"attributes,omitempty"`
	// Capacity of each device, as the driver publishes it: {memory: 80Gi}.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Capacity map[string]resource.Quantity `json:"capacity,omitempty"`
	// AllowMultipleAllocations is true for devices that several claims can share. Each takes a part of the capacity.
	// +optional
	AllowMultipleAllocations bool `json:"allowMultipleAllocations,omitempty"`
	// RequestPolicies say how much a claim takes of a capacity of a shared device, by the name of the capacity:
	// {memory: {default: 1Gi, validRange: {min: 1Gi, step: 1Gi}}}. Of a capacity without a policy, a claim takes what
	// it requests, and all of it if it requests nothing.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	RequestPolicies map[string]resourcev1.CapacityRequestPolicy `json:"requestPolicies,omitempty"`
	// SharedCounters are sets of counters. Devices of this driver in any entry can consume from them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	SharedCounters []NodeTypeCounterSet `json:"sharedCounters,omitempty"`
	// ConsumesCounters says how much each device consumes of the counters of sets, so that a GPU and its partitions are
	// not both given out. Devices that consume from the same set are parts of one accelerator, by the first entry.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	ConsumesCounters []NodeTypeCounterConsumption `json:"consumesCounters,omitempty"`
	// PCIeRoots define which devices of a server share a PCIe root, so that claims can ask for a GPU and a network card
	// at one root by constraining resource.kubernetes.io/pcieRoot. The roots are dealt out to the devices in turn: of
	// four devices and the roots [a, b], the first and the third are at a. Devices of other drivers at a root of the
	// same name share it too. The names have no other use, because the real ones are known only once a server runs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	PCIeRoots []string `json:"pcieRoots,omitempty"`
}

// NodeTypeCounterSet is a number of like sets of counters, one for each device that is partitioned.
type NodeTypeCounterSet struct {
	// Name that consumesCounters refer to, unique for each driver.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=59
	Name string `json:"name"`
	// Count of these sets in one server. They are dealt out in turn to the devices of each entry that consumes from
	// them: of 56 devices and 8 sets, the first and the ninth consume from the first set.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	Count int32 `json:"count,omitempty"`
	// Counters in each set: {memory: 80Gi, slices: 7}.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Counters map[string]resource.Quantity `json:"counters"`
}

// NodeTypeCounterConsumption is what a device consumes from a set of counters.
type NodeTypeCounterConsumption struct {
	// CounterSet is the name of the sets, among sharedCounters of the driver.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=59
	CounterSet string `json:"counterSet"`
	// Counters that the device consumes: {memory: 10Gi, slices: 1}.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Counters map[string]resource.Quantity `json:"counters"`
}

// NodeTypeDeviceAttribute is the value of an attribute: exactly one field is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.string), has(self.int), has(self.bool), has(self.version)].exists_one(x, x)",message="set exactly one of string, int, bool and version"
type NodeTypeDeviceAttribute struct {
	// String value.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	String *string `json:"string,omitempty"`
	// Int is a whole number.
	// +optional
	Int *int64 `json:"int,omitempty"`
	// Bool is true or false.
	// +optional
	Bool *bool `json:"bool,omitempty"`
	// Version is a semantic version, according to semver.org 2.0.0.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version *string `json:"version,omitempty"`
}

// Drivers returns the DRA drivers that publish devices on servers of the profile, sorted.
func (p *HardwareProfile) Drivers() []string {
	var drivers []string
	for _, device := range p.Devices {
		drivers = append(drivers, device.Driver)
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

// Accelerated reports whether servers of the profile have accelerators, by a device plugin or by a DRA driver. A type
// with accelerators is only for claims that request one of them.
func (p *HardwareProfile) Accelerated() bool {
	return len(p.Devices) > 0 || len(Accelerators(p.Resources)) > 0
}

// AsksForDriver reports whether offered has one of the requested drivers.
func AsksForDriver(requested, offered []string) bool {
	return slices.ContainsFunc(requested, func(driver string) bool { return slices.Contains(offered, driver) })
}
