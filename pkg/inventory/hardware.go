// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What of the memory may be missing: types name what is in the slots or what a node has for its processes, and inspection
// finds one or the other. Between the two is what firmware and kernel keep, 2 % of a big server and a few hundred MiB of a
// small one. A slot that is empty on a server with up to 32 of them is more.
const (
	memoryToleranceShare = 0.03
	memoryToleranceLeast = 1 << 30 // bytes
)

// hardware is what Metal3's inspection has found, as far as a type's resources speak of it. Zero is what it has not found.
type hardware struct {
	cpus, memory, disks int64 // threads, bytes, bytes
}

func hardwareOf(host *bmov1alpha1.BareMetalHost) hardware {
	details := host.Status.HardwareDetails
	if details == nil {
		return hardware{}
	}
	found := hardware{cpus: int64(details.CPU.Count), memory: int64(details.RAMMebibytes) << 20}
	for i := range details.Storage {
		found.disks += int64(details.Storage[i].SizeBytes)
	}
	return found
}

// Lacks tells what a host has less of than the resources of a type say, in words: "cpu 64 of 96, memory 512Gi of 768Gi". It
// is empty for a host that is big enough, or of which nothing else is known: a host that has not been inspected is not
// judged, and neither is what inspection does not find, such as accelerators.
//
// cpu is threads, as kubelet counts them, and may not be less at all. memory may be less by 3 %, or by 1 GiB if that is
// more. ephemeral-storage may not be more than all disks together.
func Lacks(host *bmov1alpha1.BareMetalHost, resources corev1.ResourceList) string {
	return hardwareOf(host).lacks(resources)
}

func (h hardware) lacks(resources corev1.ResourceList) string {
	var lacking []string
	compare := func(name corev1.ResourceName, found, tolerance int64, format resource.Format) {
		said, named := resources[name]
		if has := resource.NewQuantity(found, format); found > 0 && named && said.Cmp(*resource.NewQuantity(found+tolerance, format)) > 0 {
			lacking = append(lacking, fmt.Sprintf("%s %s of %s", name, has, said.String()))
		}
	}
	memory := resources.Memory().Value()
	compare(corev1.ResourceCPU, h.cpus, 0, resource.DecimalSI)
	compare(corev1.ResourceMemory, h.memory, max(memoryToleranceLeast, int64(float64(memory)*memoryToleranceShare)), resource.BinarySI)
	compare(corev1.ResourceEphemeralStorage, h.disks, 0, resource.BinarySI)
	return strings.Join(lacking, ", ")
}
