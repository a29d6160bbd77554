// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// InstanceLabels returns the labels of all nodes of a type that say how big its servers are. Undeclared values come
// from inspection. Unknown values get no label.
func InstanceLabels(nodeType *v1alpha1.NodeType) map[string]string {
	labels := map[string]string{}
	number := func(key string, value int64) {
		if value > 0 {
			labels[key] = strconv.FormatInt(value, 10)
		}
	}
	resources := nodeType.EffectiveResources()
	number(v1alpha1.InstanceCPULabelKey, resources.Cpu().Value())
	number(v1alpha1.InstanceMemoryLabelKey, mebibytes(*resources.Memory()))

	// The same card can be offered as a resource and as a device.
	var plugged, published int64
	var manufacturers, names []string
	var memories []int64
	for name, quantity := range resources {
		if manufacturer, is := gpuResource(name); is && quantity.Sign() > 0 {
			plugged, manufacturers = plugged+quantity.Value(), append(manufacturers, manufacturer)
		}
	}
	for _, driver := range nodeType.Spec.Drivers() {
		if manufacturer, is := gpuManufacturer(driver); is {
			published, manufacturers = published+nodeType.Spec.CountDevices(driver), append(manufacturers, manufacturer)
			driverNames, driverMemories := gpusOf(nodeType.Spec.Devices, driver)
			names, memories = append(names, driverNames...), append(memories, driverMemories...)
		}
	}
	number(v1alpha1.InstanceGPUCountLabelKey, max(plugged, published))
	number(v1alpha1.InstanceGPUMemoryLabelKey, same(memories))
	for key, value := range map[string]string{
		v1alpha1.InstanceGPUManufacturerLabelKey: same(manufacturers), v1alpha1.InstanceGPUNameLabelKey: same(names),
	} {
		if value != "" {
			labels[key] = value
		}
	}
	return labels
}

// gpusOf returns the names and the memories of the GPUs of a driver. A GPU and its partitions count as one: the one
// with the most memory is the whole GPU.
func gpusOf(devices []v1alpha1.NodeTypeDevice, driver string) (names []string, memories []int64) {
	whole := map[string]v1alpha1.NodeTypeDevice{}
	for n, device := range devices {
		if device.Driver != driver {
			continue
		}
		key := cmp.Or(device.PartOf(), "/"+strconv.Itoa(n)) // no name of a set has a slash
		if known, found := whole[key]; !found || mebibytes(device.Capacity["memory"]) > mebibytes(known.Capacity["memory"]) {
			whole[key] = device
		}
	}
	for _, device := range whole {
		names, memories = append(names, gpuName(device)), append(memories, mebibytes(device.Capacity["memory"]))
	}
	return names, memories
}

func mebibytes(quantity resource.Quantity) int64 { return quantity.Value() >> 20 }

func same[T comparable](all []T) (value T) {
	if len(all) == 0 || slices.ContainsFunc(all, func(other T) bool { return other != all[0] }) {
		return value
	}
	return all[0]
}

// gpuResources are the names that device plugins give to a whole GPU, after the domain of its manufacturer.
var gpuResources = []string{"gpu", "i915", "xe"}

// gpuResource returns the manufacturer of a whole-GPU resource: nvidia for nvidia.com/gpu, intel for gpu.intel.com/xe.
func gpuResource(name corev1.ResourceName) (manufacturer string, is bool) {
	domain, resource, _ := strings.Cut(string(name), "/")
	if !slices.Contains(gpuResources, resource) {
		return "", false
	}
	manufacturer, _, _ = strings.Cut(strings.TrimPrefix(domain, gpuPrefix), ".")
	return manufacturer, true
}

const gpuPrefix = "gpu."

// gpuManufacturer returns the manufacturer for a DRA driver of GPUs: nvidia for gpu.nvidia.com.
func gpuManufacturer(driver string) (manufacturer string, is bool) {
	domain, is := strings.CutPrefix(driver, gpuPrefix)
	manufacturer, _, _ = strings.Cut(domain, ".")
	return manufacturer, is
}

// notInNames matches characters that are not allowed in the value of a label.
var notInNames = regexp.MustCompile(`[^a-z0-9._-]+`)

// gpuName returns the product name that a driver publishes as a label value: nvidia-h100-80gb-hbm3.
func gpuName(device v1alpha1.NodeTypeDevice) string {
	name := device.Attributes["productName"].String
	if name == nil {
		return ""
	}
	value := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(*name), "-"), "-._")
	if len(validation.IsValidLabelValue(value)) > 0 {
		return "" // too long
	}
	return value
}
