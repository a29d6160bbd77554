// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// Known reports whether the manager has ever written the status of the NodeType. A type that became invalid later keeps
// its last status and stays known: to Karpenter, the nodes of a missing type have drifted.
func Known(nodeType *v1alpha1.NodeType) bool {
	return len(nodeType.Status.Requirements) > 0 || meta.IsStatusConditionTrue(nodeType.Status.Conditions, v1alpha1.ConditionSynced)
}

// convert returns Karpenter's instance type for a NodeType. keys are the labels that some NodeType advertises: the
// result says which of them this type does not have. It shares nothing with the NodeType.
func convert(nodeType *v1alpha1.NodeType, keys []string, pods int64, demand *Demand) *cloudprovider.InstanceType {
	zones := zonesOf(nodeType)
	server := capacity.ServerOf(nodeType, nil)
	if _, declared := server.Resources[corev1.ResourcePods]; !declared {
		server.Resources[corev1.ResourcePods] = *resource.NewQuantity(pods, resource.DecimalSI)
	}
	// With this, core counts each NodeClaim that it plans against limits.nodes, and not only existing nodes. No
	// NodeClaim and no Node has it.
	server.Resources[v1alpha1.ResourceNodes] = *resource.NewQuantity(1, resource.DecimalSI)
	instanceType := &cloudprovider.InstanceType{
		Name:         nodeType.Name,
		Requirements: requirements(nodeType, zones, keys),
		Offerings:    offerings(nodeType, demand),
		Capacity:     server.Resources,
		Overhead:     &cloudprovider.InstanceTypeOverhead{KubeReserved: server.KubeReserved},

		DynamicResources: dynamicResources(nodeType),
	}
	divide(instanceType, capacity.Kubelet{})
	return instanceType
}

func requirements(nodeType *v1alpha1.NodeType, zones []v1alpha1.ZoneCapacity, keys []string) scheduling.Requirements {
	var open []string // labels that can have any value
	values := map[string][]string{
		corev1.LabelOSStable: {string(corev1.Linux)},
		// Until a server of this type has been seen, either is possible.
		corev1.LabelArchStable: {karpv1.ArchitectureAmd64, karpv1.ArchitectureArm64},
	}
	for _, advertised := range nodeType.Status.Requirements {
		if Selectable(advertised.Key) {
			values[advertised.Key] = advertised.Values
			if len(advertised.Values) == 0 {
				open = append(open, advertised.Key)
			}
		}
	}
	values[corev1.LabelInstanceTypeStable] = []string{nodeType.Name}
	values[v1alpha1.NodeTypeLabelKey] = []string{nodeType.Name}
	maps.Copy(values, v1alpha1.OtherSpellings(values))
	values[karpv1.CapacityTypeLabelKey] = []string{karpv1.CapacityTypeReserved}
	values[corev1.LabelTopologyZone] = nil
	for _, zone := range zones {
		values[corev1.LabelTopologyZone] = append(values[corev1.LabelTopologyZone], zone.Name)
	}
	maps.Copy(values, freePlaces(nodeType))
	if nodeType.Spec.Accelerated() || len(nodeType.Undeclared()) > 0 {
		values[v1alpha1.AcceleratedLabelKey] = []string{"true"}
	}

	result := scheduling.NewRequirements()
	for _, absent := range slices.Concat(wellKnown(), keys, []string{v1alpha1.AcceleratedLabelKey}) {
		result[absent] = scheduling.NewRequirement(absent, corev1.NodeSelectorOpDoesNotExist)
	}
	for key, allowed := range values {
		if len(allowed) == 0 {
			continue
		}
		result[key] = scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, allowed...)
	}
	for _, key := range open {
		result[key] = scheduling.NewRequirement(key, corev1.NodeSelectorOpExists)
	}
	for _, key := range someMatch(nodeType) {
		delete(result, key) // the offerings have it
	}
	// The offerings have its values: they may be hundreds.
	result[v1alpha1.ReservationIDLabelKey] = scheduling.NewRequirement(v1alpha1.ReservationIDLabelKey,
		corev1.NodeSelectorOpExists)
	return result
}

// zonesOf returns the zones of a type, by name.
func zonesOf(nodeType *v1alpha1.NodeType) []v1alpha1.ZoneCapacity {
	zones := slices.Clone(nodeType.Status.Zones)
	slices.SortFunc(zones, func(a, b v1alpha1.ZoneCapacity) int { return strings.Compare(a.Name, b.Name) })
	return zones
}

// Domains returns the topology domains of a type, or its zones if its servers have no topology labels: read-only.
func Domains(nodeType *v1alpha1.NodeType) []v1alpha1.DomainCapacity {
	if len(nodeType.Status.Domains) > 0 {
		return nodeType.Status.Domains
	}
	return lo.Map(zonesOf(nodeType), func(zone v1alpha1.ZoneCapacity, _ int) v1alpha1.DomainCapacity {
		return v1alpha1.DomainCapacity{Zone: zone.Name, Capacity: zone.Capacity}
	})
}

// withNode returns the instance type of a NodeType for nodes with this kubelet that are as big as the tenant's own
// nodes have been.
func withNode(original *cloudprovider.InstanceType, nodeType *v1alpha1.NodeType, kubelet capacity.Kubelet,
	own corev1.ResourceList) *cloudprovider.InstanceType {
	if kubelet.IsDefault() && len(own) == 0 {
		return original
	}
	divided := withOfferings(original, original.Offerings)
	divided.Capacity = maps.Clone(original.Capacity)
	server := capacity.ServerOf(nodeType, own)
	for _, name := range capacity.Measured() {
		if has, found := server.Resources[name]; found {
			divided.Capacity[name] = has
		}
	}
	divide(divided, kubelet)
	return divided
}

// divide sets the capacity and the overhead to the kubelet's division of the capacity and the type's own overhead.
func divide(instanceType *cloudprovider.InstanceType, kubelet capacity.Kubelet) {
	node := kubelet.Node(capacity.Server{Resources: instanceType.Capacity, KubeReserved: instanceType.Overhead.KubeReserved})
	instanceType.Capacity = node.Capacity
	instanceType.Overhead = &cloudprovider.InstanceTypeOverhead{
		KubeReserved: node.KubeReserved, SystemReserved: node.SystemReserved, EvictionThreshold: node.EvictionReserved,
	}
}

// dynamicResources returns the devices that drivers will publish on a node of the type, so that Karpenter can allocate
// them to claims of pending pods before there is a node. A type with invalid devices has none.
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
				AllowMultipleAllocations: device.Shared, ConsumesCounters: device.ConsumesCounters,
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
		if len(driver.CounterSets) > 0 { // No slice has both: core would leave the devices out.
			result.ResourceSliceTemplates = append(result.ResourceSliceTemplates, &cloudprovider.ResourceSliceTemplate{
				Driver: template.Driver, Pool: template.Pool, SharedCounters: driver.CounterSets,
			})
		}
	}
	// It is known which devices share a root, but not how the driver will call it.
	for _, name := range names {
		if shared := roots[name]; len(shared) > 1 {
			result.AttributeBindings = append(result.AttributeBindings, &cloudprovider.AttributeBinding{
				Devices: shared, Attribute: devices.PCIeRoot,
			})
		}
	}
	return result
}
