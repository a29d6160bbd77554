// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/kubelet"
)

// Firmware and kernel keep this share of the memory in the slots: no node has all of it.
const keptMemory = 50 // one part in so many

// fileSystem is what the file system of the kubelet has, in bytes, of the disk of 480 GiB that inspection finds.
const fileSystem = 440 << 30

// resourcesOf returns what a kubelet reports for the server: what its kernel shows of the hardware, and what of it pods may use
// after the reservations in kubelet's arguments.
func resourcesOf(server Server, join bootstrap.Join) (capacity, allocatable corev1.ResourceList) {
	machine := server.Capacity.DeepCopy()
	if memory, has := machine[corev1.ResourceMemory]; has {
		memory.Sub(*resource.NewQuantity(memory.Value()>>20/keptMemory<<20, resource.BinarySI))
		machine[corev1.ResourceMemory] = memory
	}
	if _, has := machine[corev1.ResourceEphemeralStorage]; !has {
		machine[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(fileSystem, resource.BinarySI)
	}
	return kubelet.Resources(machine, join.KubeletArgs)
}

// withoutExtended removes extended resources.
func withoutExtended(resources corev1.ResourceList) corev1.ResourceList {
	own := corev1.ResourceList{}
	for name, amount := range resources {
		if !strings.Contains(string(name), "/") {
			own[name] = amount
		}
	}
	return own
}
