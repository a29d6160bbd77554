// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Hardware compares what Metal3 has found in a server with its NodeTypes.
type Hardware struct {
	// Types are the NodeTypes that the server matches, in the order of Said.
	Types []string      `json:"types,omitempty"`
	Parts []HardwareRow `json:"parts"`
	// Lacks is what the server has less of than a NodeType declares, by NodeType.
	Lacks map[string]string `json:"lacks,omitempty"`
	// Inspected is false until Metal3 has found hardware details.
	Inspected bool `json:"inspected"`
}

// HardwareRow is one kind of part. Said is the amount that each NodeType declares.
type HardwareRow struct {
	Name      string   `json:"name"`
	Inspected string   `json:"inspected,omitempty"`
	Said      []string `json:"said,omitempty"`
}

// Hardware returns the hardware of a host. Inspection does not find accelerators.
func (f *Fleet) Hardware(host *bmov1alpha1.BareMetalHost) Hardware {
	known, _ := f.inventory.Server(keyOf(host))
	hardware := Hardware{Types: known.Types, Lacks: map[string]string{}, Inspected: host.Status.HardwareDetails != nil}
	declared := func(resources ...corev1.ResourceName) (all []string) {
		for _, name := range known.Types {
			var quantities []string
			for _, resourceName := range resources {
				if quantity, is := f.nodeTypes[name].Spec.Resources[resourceName]; is {
					quantities = append(quantities, quantity.String())
				}
			}
			all = append(all, strings.Join(quantities, ", "))
		}
		return all
	}
	for name, state := range known.States {
		if state.Lacks != "" {
			hardware.Lacks[name] = state.Lacks
		}
	}
	found := bmov1alpha1.HardwareDetails{}
	if hardware.Inspected {
		found = *host.Status.HardwareDetails
	}
	ifFound := func(is bool, text string) string {
		if !is {
			return ""
		}
		return text
	}
	hardware.Parts = []HardwareRow{
		{"cpu", ifFound(found.CPU.Count > 0, fmt.Sprintf("%d threads, %s", found.CPU.Count, found.CPU.Arch)), declared(corev1.ResourceCPU)},
		{"memory", ifFound(found.RAMMebibytes > 0, resource.NewQuantity(int64(found.RAMMebibytes)<<20, resource.BinarySI).String()),
			declared(corev1.ResourceMemory)},
		{"disks", disks(found.Storage), declared(corev1.ResourceEphemeralStorage)},
		{"network interfaces", ifFound(len(found.NIC) > 0, fmt.Sprint(len(found.NIC))), nil},
	}
	var accelerators []corev1.ResourceName
	for _, name := range known.Types {
		accelerators = append(accelerators, v1alpha1.Accelerators(f.nodeTypes[name].Spec.Resources)...)
	}
	slices.Sort(accelerators)
	for _, name := range slices.Compact(accelerators) {
		hardware.Parts = append(hardware.Parts, HardwareRow{string(name), "", declared(name)})
	}
	return hardware
}

// disks lists disks in words: "2 of 1600 GB, 1 of 480 GB".
func disks(all []bmov1alpha1.Storage) string {
	count, sizes := map[bmov1alpha1.Capacity]int{}, []bmov1alpha1.Capacity{}
	for i := range all {
		if count[all[i].SizeBytes] == 0 {
			sizes = append(sizes, all[i].SizeBytes)
		}
		count[all[i].SizeBytes]++
	}
	var words []string
	for _, size := range sizes {
		words = append(words, fmt.Sprintf("%d of %d GB", count[size], size/1e9))
	}
	return strings.Join(words, ", ")
}
