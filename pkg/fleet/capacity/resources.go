// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity reads the hardware profile of a NodeType: its allocatable resources, its accelerators, and the
// selector of its BareMetalHosts.
package capacity

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// DefaultEphemeralStorage is the disk that a node is planned with if its disk is unknown, in bytes. With no disk, core
// would plan no pod that requests a byte, and one DaemonSet that requests a byte would keep all pods waiting.
const DefaultEphemeralStorage = 20 << 30

const (
	// SmallestRootDisk in bytes: Ironic installs on no smaller disk, and a BMC may show its virtual floppy as a disk.
	SmallestRootDisk = 4 << 30
	// The part of a disk outside the file system of the kubelet: boot partitions, and the file system's own tables.
	diskShare = 10 // one part in so many
	diskLeast = 1 << 30
)

// EphemeralStorage returns the disk to plan a node with if its type declares none: a part of smallestDisk, the smallest
// disk of the type's servers in bytes, or the setting if that is 0. It returns nil for a type that declares the disk.
func EphemeralStorage(profile *v1alpha1.HardwareProfile, smallestDisk int64, setting resource.Quantity) *resource.Quantity {
	if _, declared := profile.Resources[corev1.ResourceEphemeralStorage]; declared {
		return nil
	}
	if smallestDisk > 0 {
		setting = *resource.NewQuantity(smallestDisk-max(smallestDisk/diskShare, diskLeast), resource.BinarySI)
	}
	return &setting
}

// How much memory may be missing. A type declares either the memory in the slots or the memory that processes can use,
// and inspection finds one or the other. Firmware and kernel keep the difference: 2 % of a big server, and a few
// hundred MiB of a small one. An empty slot on a server with up to 32 slots is more.
const (
	memoryShare = 0.03
	memoryMost  = 1 << 30 // bytes
	memoryPart  = 4       // one part in so many, of a server that has less than four times as much
)

// MemoryTolerance returns how much less memory than declared a server may have and still be claimed as the type, in
// bytes: 3 %, or 1 GiB if that is more, but never more than a quarter.
func MemoryTolerance(memory int64) int64 {
	return max(int64(float64(memory)*memoryShare), min(memoryMost, memory/memoryPart))
}

// Declared returns the most that a node of the type can have: the declared resources, and cpu, memory and disk, which
// the type need not declare. Machines are compared with it. The result shares no map with the type.
func Declared(nodeType *v1alpha1.NodeType) Server {
	server := Server{Resources: nodeType.EffectiveResources()}
	if _, found := server.Resources[corev1.ResourceEphemeralStorage]; !found {
		disk := resource.NewQuantity(DefaultEphemeralStorage, resource.BinarySI)
		if nodeType.Status.EphemeralStorage != nil {
			disk = nodeType.Status.EphemeralStorage
		}
		server.Resources[corev1.ResourceEphemeralStorage] = disk.DeepCopy()
	}
	if nodeType.Spec.Overhead != nil {
		server.KubeReserved = nodeType.Spec.Overhead.KubeReserved.DeepCopy()
	}
	return server
}

// Measured returns the resources that a kubelet measures, so that a type may declare them wrongly.
func Measured() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
}

// ServerOf returns the server that a tenant plans with for a type: the resources that the type declares or inspection
// found, capped at own, the most that the tenant's own nodes have had; nil if unknown. Unknown memory is planned
// without the tolerance, as such a server is claimed as the type, too. The result shares no map with the type.
func ServerOf(nodeType *v1alpha1.NodeType, own corev1.ResourceList) Server {
	server := Declared(nodeType)
	if _, found := server.Resources[corev1.ResourceMemory]; found && own.Memory().IsZero() {
		server.Resources[corev1.ResourceMemory] = tolerated(server.Resources, corev1.ResourceMemory)
	}
	for name, most := range own {
		if has, found := server.Resources[name]; found && most.Cmp(has) < 0 {
			server.Resources[name] = most.DeepCopy()
		}
	}
	return server
}

// NamesNoAccelerators says who gets a type whose profile names nothing. found are signs of accelerators in its servers.
func NamesNoAccelerators(found []string) string {
	if len(found) == 0 {
		return "names no accelerators: pods that ask for GPUs do not get it, and all others do; write nvidia.com/gpu if its servers have GPUs"
	}
	return "names no accelerators, although its servers show some (" + strings.Join(found, ", ") + "): only static pools and Machines that " +
		"name the type get it; write nvidia.com/gpu for pods that ask for GPUs"
}

// Selector parses a selector of hosts part by part, so that the error can name the wrong part. It returns nil for nil.
func Selector(from *metav1.LabelSelector) (labels.Selector, error) {
	if from == nil {
		return nil, nil
	}
	for key, value := range from.MatchLabels {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			return nil, fmt.Errorf("bareMetalHosts.selector.matchLabels (%s: %s) is not valid: %w", key, value, err)
		}
	}
	for n, requirement := range from.MatchExpressions {
		selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{requirement}}
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			return nil, fmt.Errorf("bareMetalHosts.selector.matchExpressions[%d] (%s %s [%s]) is not valid: %w",
				n, requirement.Key, requirement.Operator, strings.Join(requirement.Values, ", "), err)
		}
	}
	return metav1.LabelSelectorAsSelector(from)
}

// Accelerators lists one server's accelerators for people, resources by name, devices by driver: "nvidia.com/gpu=8".
func Accelerators(profile *v1alpha1.HardwareProfile) string {
	var parts []string
	for _, name := range v1alpha1.Accelerators(profile.Resources) {
		quantity := profile.Resources[name]
		parts = append(parts, fmt.Sprintf("%s=%s", name, quantity.String()))
	}
	for _, driver := range devices.Expand(profile.Devices) {
		parts = append(parts, fmt.Sprintf("%s=%d", driver.Name, profile.CountDevices(driver.Name)))
	}
	return strings.Join(parts, ", ")
}

// Rest counts the servers that are neither claimed nor available, because they are too small or for a reason that the
// capacity does not count. Above maxCapacity, it also includes servers that could be claimed.
func Rest(c v1alpha1.Capacity) int32 {
	return c.Total - c.Claimed - c.Available - c.Error - c.Quarantined - c.Maintenance - c.NotCleaned
}

// OnlyTooSmall counts the servers that are too small and otherwise fine: neither claimed, nor in error or quarantined.
func OnlyTooSmall(c v1alpha1.Capacity, notReady int32) int32 {
	return min(c.TooSmall, Rest(c)-notReady)
}

// Describe writes the capacity of a type for people: "2 servers match in rack r1, 2 claimed, 0 in error". It counts
// each server once, as too small only if nothing else applies. notReady counts servers that cannot be claimed for a
// reason that the capacity does not count, such as being inspected. foreign counts claimed servers that our Machines do
// not have, as far as that is known.
func Describe(c v1alpha1.Capacity, foreign, notReady int32, where string) string {
	noun := "servers match"
	switch c.Total {
	case 0:
		return "no server matches" + where
	case 1:
		noun = "server matches"
	}
	others := ""
	if foreign > 0 {
		others = fmt.Sprintf(" (%d by others)", foreign)
	}
	text := fmt.Sprintf("%d %s%s, %d claimed%s, %d in error", c.Total, noun, where, c.Claimed, others, c.Error)
	if c.Quarantined > 0 {
		text += fmt.Sprintf(", %d quarantined", c.Quarantined)
	}
	if c.Maintenance > 0 {
		text += fmt.Sprintf(", %d in maintenance", c.Maintenance)
	}
	if c.NotCleaned > 0 {
		text += fmt.Sprintf(", %d not cleaned", c.NotCleaned)
	}
	if notReady > 0 {
		text += fmt.Sprintf(", %d not ready", notReady)
	}
	if small := OnlyTooSmall(c, notReady); small > 0 { // last: their names may follow
		text += fmt.Sprintf(", %d too small", small)
	}
	return text
}
