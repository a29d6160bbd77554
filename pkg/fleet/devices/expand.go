// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// PCIeRoot is the attribute that claims use to require devices at one PCIe root.
const PCIeRoot resourcev1.QualifiedName = "resource.kubernetes.io/pcieRoot"

// Driver is what one DRA driver publishes on a server.
type Driver struct {
	// Name of the driver.
	Name string
	// Devices in the order of the NodeType.
	Devices []Device
}

// Device is one device of a server.
type Device struct {
	// Name is unique among the devices of the driver on a server.
	Name string
	// Attributes and Capacity belong to this device alone.
	Attributes map[resourcev1.QualifiedName]resourcev1.DeviceAttribute
	Capacity   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity
	// Root is the PCIe root of the device in the NodeType, empty if there is none. It is not among Attributes.
	Root string
}

// Expand returns the single devices of the groups by driver, in the order of the first device of each driver.
func Expand(groups []v1alpha1.NodeTypeDevice) []Driver {
	var drivers []Driver
	at := map[string]int{}
	for _, group := range groups {
		n, known := at[group.Driver]
		if !known {
			n = len(drivers)
			at[group.Driver] = n
			drivers = append(drivers, Driver{Name: group.Driver})
		}
		for i := range int(group.Count) {
			device := Device{
				Name:       fmt.Sprintf("device-%d", len(drivers[n].Devices)),
				Attributes: attributesOf(group),
				Capacity:   capacityOf(group),
			}
			if roots := len(group.PCIeRoots); roots > 0 {
				device.Root = group.PCIeRoots[i%roots]
			}
			drivers[n].Devices = append(drivers[n].Devices, device)
		}
	}
	return drivers
}

func attributesOf(group v1alpha1.NodeTypeDevice) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	attributes := make(map[resourcev1.QualifiedName]resourcev1.DeviceAttribute, len(group.Attributes))
	for name, value := range group.Attributes {
		value := value.DeepCopy()
		attributes[resourcev1.QualifiedName(name)] = resourcev1.DeviceAttribute{
			StringValue: value.String, IntValue: value.Int, BoolValue: value.Bool, VersionValue: value.Version,
		}
	}
	return attributes
}

func capacityOf(group v1alpha1.NodeTypeDevice) map[resourcev1.QualifiedName]resourcev1.DeviceCapacity {
	capacity := make(map[resourcev1.QualifiedName]resourcev1.DeviceCapacity, len(group.Capacity))
	for name, value := range group.Capacity {
		capacity[resourcev1.QualifiedName(name)] = resourcev1.DeviceCapacity{Value: value.DeepCopy()}
	}
	return capacity
}
