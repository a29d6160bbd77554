// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// NodeTypeDevice is a group of like devices that a DRA driver publishes for each server of a type. From it Karpenter
// knows, before there is a node, which ResourceClaims a server can serve.
type NodeTypeDevice struct {
	// Driver that publishes the devices, by its DNS name: gpu.nvidia.com.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="driver is the DNS name of the DRA driver that publishes the devices, for example gpu.nvidia.com"
	Driver string `json:"driver"`
	// Count of devices in one server.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	Count int32 `json:"count"`
	// Attributes of each device, as the driver publishes them. A key without a domain is of the driver's own domain.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Attributes map[string]NodeTypeDeviceAttribute `json:"attributes,omitempty"`
	// Capacity of each device, as the driver publishes it: {memory: 80Gi}.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Capacity map[string]resource.Quantity `json:"capacity,omitempty"`
	// PCIeRoots define which devices of a server share a PCIe root, so that claims can ask for a GPU and a network card
	// at one root by constraining resource.kubernetes.io/pcieRoot. They are dealt out to the devices in turn: of four
	// devices and the roots [a, b], the first and the third are at a. Devices of other drivers at a root of the same
	// name share it too. The names serve for nothing else, because the real ones are known only once a server runs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	PCIeRoots []string `json:"pcieRoots,omitempty"`
}

// NodeTypeDeviceAttribute is the value of an attribute: one of its fields is set.
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

// Drivers are the DRA drivers that publish devices on servers of the profile, sorted.
func (p *HardwareProfile) Drivers() []string {
	var drivers []string
	for _, device := range p.Devices {
		drivers = append(drivers, device.Driver)
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

// Accelerated returns whether servers of the profile have accelerators, by a device plugin or by a DRA driver. Such a
// type is only for claims that request one of them.
func (p *HardwareProfile) Accelerated() bool {
	return len(p.Devices) > 0 || len(Accelerators(p.Resources)) > 0
}

// AsksForDriver returns whether one of the requested drivers is among the offered ones.
func AsksForDriver(requested, offered []string) bool {
	return slices.ContainsFunc(requested, func(driver string) bool { return slices.Contains(offered, driver) })
}
