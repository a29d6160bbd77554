// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// Quota bounds what a tenant has at a time. A server counts from its claim until it is clean and back in the pool.
type Quota struct {
	// Servers is how many servers the tenant may have. Unset: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Servers *int64 `json:"servers,omitempty"`
	// GPUs is how many accelerators, of whatever kind, the tenant's servers may have together. Unset: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUs *int64 `json:"gpus,omitempty"`
}

// CountAccelerators returns how many accelerators one server has: those of its resources or the devices of its DRA drivers,
// whichever are more, because the same card can be offered in both ways.
func (p *HardwareProfile) CountAccelerators() int64 {
	devices := int64(0)
	for _, device := range p.Devices {
		devices += int64(device.Count)
	}
	return max(CountAccelerators(p.Resources), devices)
}

// CountAccelerators returns how many accelerators there are in resources, of all kinds together.
func CountAccelerators(resources corev1.ResourceList) int64 {
	count := int64(0)
	for _, name := range Accelerators(resources) {
		quantity := resources[name]
		count += quantity.Value()
	}
	return count
}
