// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices computes from a NodeType the devices that DRA drivers publish on a server, and validates them. It
// depends neither on Karpenter nor on a cluster.
package devices

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/samber/lo"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// PCIeRoot is the attribute that claims use to require devices at one PCIe root.
const PCIeRoot resourcev1.QualifiedName = "resource.kubernetes.io/pcieRoot"

// Driver holds what one DRA driver publishes on a server.
type Driver struct {
	Name string
	// Devices in the order of the NodeType, with the parts of an accelerator side by side.
	Devices []Device
	// CounterSets are the counters that the devices consume from.
	CounterSets []resourcev1.CounterSet
}

// Device is one device of a server.
type Device struct {
	// Name is unique among the devices of the driver on a server.
	Name string
	// Attributes and Capacity belong to this device alone.
	Attributes map[resourcev1.QualifiedName]resourcev1.DeviceAttribute
	Capacity   map[resourcev1.QualifiedName]resourcev1.DeviceCapacity
	// Shared is true if several claims can have the device.
	Shared           bool
	ConsumesCounters []resourcev1.DeviceCounterConsumption
	// Root is the PCIe root of the device in the NodeType, empty if there is none. Attributes does not include it.
	Root string
}

// Expand returns the single devices of the groups by driver, in the order of each driver's first device.
func Expand(groups []v1alpha1.NodeTypeDevice) []Driver {
	var drivers []Driver
	positions := map[string]int{}
	sets := setsOf(groups)
	for _, group := range groups {
		n, known := positions[group.Driver]
		if !known {
			n = len(drivers)
			positions[group.Driver] = n
			drivers = append(drivers, Driver{Name: group.Driver})
		}
		for _, set := range group.SharedCounters {
			for i := range sets[setID{group.Driver, set.Name}].Count {
				drivers[n].CounterSets = append(drivers[n].CounterSets, resourcev1.CounterSet{
					Name: counterSetName(set.Name, i), Counters: countersOf(set.Counters)})
			}
		}
		for i := range int(group.Count) {
			device := Device{
				Name:       fmt.Sprintf("device-%d", len(drivers[n].Devices)),
				Attributes: attributesOf(group),
				Capacity:   capacityOf(group),
				Shared:     group.AllowMultipleAllocations,
			}
			for _, consumption := range group.ConsumesCounters {
				// A set that does not exist has no devices to itself, and Validate refuses it.
				turn := int32(i) % max(1, sets[setID{group.Driver, consumption.CounterSet}].Count)
				device.ConsumesCounters = append(device.ConsumesCounters, resourcev1.DeviceCounterConsumption{
					CounterSet: counterSetName(consumption.CounterSet, turn), Counters: countersOf(consumption.Counters)})
			}
			if roots := len(group.PCIeRoots); roots > 0 {
				device.Root = group.PCIeRoots[i%roots]
			}
			drivers[n].Devices = append(drivers[n].Devices, device)
		}
	}
	for _, driver := range drivers {
		sortByAccelerator(driver)
	}
	return drivers
}

// sortByAccelerator puts the parts of one accelerator side by side, after the devices without parts. A claim gets the
// first device that fits, so whole GPUs stay free while another GPU still has free slices.
func sortByAccelerator(driver Driver) {
	positions := map[string]int{}
	for n, set := range driver.CounterSets {
		positions[set.Name] = n + 1
	}
	position := func(device Device) int {
		if len(device.ConsumesCounters) == 0 {
			return 0
		}
		return positions[device.ConsumesCounters[0].CounterSet]
	}
	slices.SortStableFunc(driver.Devices, func(a, b Device) int { return position(a) - position(b) })
}

// setID identifies all counter sets of one name. Drivers share no sets.
type setID struct{ driver, name string }

// setsOf returns the counter sets of all groups, each with a count of at least 1.
func setsOf(groups []v1alpha1.NodeTypeDevice) map[setID]v1alpha1.NodeTypeCounterSet {
	sets := map[setID]v1alpha1.NodeTypeCounterSet{}
	for _, group := range groups {
		for _, set := range group.SharedCounters {
			set.Count = max(1, set.Count)
			sets[setID{group.Driver, set.Name}] = set
		}
	}
	return sets
}

func counterSetName(name string, n int32) string { return fmt.Sprintf("%s-%d", name, n) }

func countersOf(quantities map[string]resource.Quantity) map[string]resourcev1.Counter {
	return lo.MapValues(quantities, func(value resource.Quantity, _ string) resourcev1.Counter {
		return resourcev1.Counter{Value: value.DeepCopy()}
	})
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
		has := resourcev1.DeviceCapacity{Value: value.DeepCopy()}
		if policy, limited := group.RequestPolicies[name]; limited {
			has.RequestPolicy = policy.DeepCopy()
		}
		capacity[resourcev1.QualifiedName(name)] = has
	}
	return capacity
}

// identifier matches what the DRA API allows as the name of an attribute or a capacity, after its domain.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Validate finds faults in the devices at a path that the schema of NodeTypes cannot find: values that no driver could
// publish. So no server is claimed for them.
func Validate(path *field.Path, groups []v1alpha1.NodeTypeDevice) field.ErrorList {
	var wrong field.ErrorList
	for n, group := range groups {
		devicePath := path.Index(n)
		if len(validation.IsDNS1123Subdomain(group.Driver)) > 0 {
			wrong = append(wrong, field.Invalid(devicePath.Child("driver"), group.Driver,
				"is not the DNS name of a driver: use a name like gpu.nvidia.com"))
		}
		if group.Count < 1 {
			wrong = append(wrong, field.Invalid(devicePath.Child("count"), group.Count,
				"devices are none: say how many there are, or remove the entry"))
		}
		wrong = append(wrong, validateAttributes(devicePath.Child("attributes"), group)...)
		wrong = append(wrong, validatePolicies(devicePath, group)...)
		for _, name := range slices.Sorted(maps.Keys(group.Capacity)) {
			capacityPath := devicePath.Child("capacity").Key(strconv.Quote(name))
			if problem := nameProblem(name); problem != "" {
				wrong = append(wrong, field.Invalid(capacityPath, name, problem))
			}
			if quantity := group.Capacity[name]; quantity.Sign() < 0 {
				wrong = append(wrong, field.Invalid(capacityPath, quantity.String(), "is less than nothing: correct it"))
			}
		}
		if total := len(group.Attributes) + len(group.Capacity); total > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
			wrong = append(wrong, field.Invalid(devicePath, total,
				fmt.Sprintf("attributes and capacities are more than the %d that a device may have: "+
					"remove some", resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)))
		}
	}
	return append(wrong, validateCounters(path, groups)...)
}

func validateAttributes(path *field.Path, group v1alpha1.NodeTypeDevice) (wrong field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(group.Attributes)) {
		attributePath := path.Key(strconv.Quote(name))
		if problem := nameProblem(name); problem != "" {
			wrong = append(wrong, field.Invalid(attributePath, name, problem))
		}
		if name == string(PCIeRoot) && len(group.PCIeRoots) > 0 {
			wrong = append(wrong, field.Invalid(attributePath, name, "is what pcieRoots says already: remove one of them"))
		}
		value := group.Attributes[name]
		if set := lo.Count([]bool{value.String != nil, value.Int != nil, value.Bool != nil, value.Version != nil}, true); set != 1 {
			wrong = append(wrong, field.Invalid(attributePath, set, "values are set: set exactly one of string, int, bool and version"))
		}
		if value.Version == nil {
			continue
		}
		if _, err := semver.Parse(*value.Version); err != nil {
			wrong = append(wrong, field.Invalid(attributePath.Child("version"), *value.Version,
				fmt.Sprintf("is not a semantic version (%v): write it like 1.2.3, or use string", err)))
		}
	}
	return wrong
}

// nameProblem returns what is wrong with the name of an attribute or a capacity: an identifier, with or without a
// domain before it. It returns "" if the name is valid.
func nameProblem(name string) string {
	domain, id, qualified := strings.Cut(name, "/")
	if !qualified {
		domain, id = "", name
	}
	if qualified && (len(domain) > resourcev1.DeviceMaxDomainLength || len(validation.IsDNS1123Subdomain(domain)) > 0) {
		return fmt.Sprintf("has the domain %q, which is not a DNS name of at most %d characters: correct it", domain,
			resourcev1.DeviceMaxDomainLength)
	}
	if len(id) > resourcev1.DeviceMaxIDLength || !identifier.MatchString(id) {
		return fmt.Sprintf("is not an identifier of at most %d letters, digits and underscores: correct it", resourcev1.DeviceMaxIDLength)
	}
	return ""
}
