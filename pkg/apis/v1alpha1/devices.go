// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// NodeTypeDevice is a group of like devices that a DRA driver publishes for each server of a type. From it Karpenter
// knows, before there is a node, which ResourceClaims a server can serve.
type NodeTypeDevice struct {
	// Driver that publishes the devices, by its DNS name: gpu.nvidia.com.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Driver string `json:"driver"`
	// Count of devices in one server.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	Count int32 `json:"count"`
	// Attributes of each device, as the driver publishes them.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Attributes map[string]NodeTypeDeviceAttribute `json:"attributes,omitempty"`
	// Capacity of each device, as the driver publishes it: {memory: 80Gi}.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Capacity map[string]resource.Quantity `json:"capacity,omitempty"`
	// PCIeRoots are the values of the attribute resource.kubernetes.io/pcieRoot, dealt out to the devices in turn, so
	// that claims can ask for devices of several drivers at one root. Unset: the attribute is not promised.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
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
