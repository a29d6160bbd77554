// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"unique"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// dynamicResources are the devices that drivers will publish on a node of the type, so that Karpenter can allocate them
// to claims of pending pods before there is a node. A type whose devices are not valid has none.
func dynamicResources(nodeType *v1alpha1.NodeType) cloudprovider.DynamicResources {
	if devices.Validate(nil, nodeType.Spec.Devices) != nil {
		return cloudprovider.DynamicResources{}
	}
	var result cloudprovider.DynamicResources
	roots := map[string][]cloudprovider.DeviceID{}
	var names []string
	for _, driver := range devices.Expand(nodeType.Spec.Devices) {
		// Drivers name their pools after the node, whose name is not known yet. Core keeps templates apart from
		// published devices, so the name only has to be equal for all devices of a driver.
		template := &cloudprovider.ResourceSliceTemplate{
			Driver: unique.Make(driver.Name),
			Pool:   cloudprovider.ResourcePool{Name: unique.Make(nodeType.Name)},
		}
		for _, device := range driver.Devices {
			template.Devices = append(template.Devices, cloudprovider.Device{
				Name: unique.Make(device.Name), Attributes: device.Attributes, Capacity: device.Capacity,
			})
			if device.Root == "" {
				continue
			}
			if _, known := roots[device.Root]; !known {
				names = append(names, device.Root)
			}
			roots[device.Root] = append(roots[device.Root], cloudprovider.DeviceID{
				Driver: template.Driver, Pool: template.Pool.Name, Device: unique.Make(device.Name),
			})
		}
		result.ResourceSliceTemplates = append(result.ResourceSliceTemplates, template)
	}
	// Which devices share a root is known, and what the driver will call it is not.
	for _, name := range names {
		if shared := roots[name]; len(shared) > 1 {
			result.AttributeBindings = append(result.AttributeBindings, &cloudprovider.AttributeBinding{
				Devices: shared, Attribute: devices.PCIeRoot,
			})
		}
	}
	return result
}
