// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// ProposedDevices returns the devices of a NodeType, from the ResourceSlices that drivers have published for one
// server of the type. It leaves out attributes that differ between like devices, and attributes that identify one
// device.
func ProposedDevices(published []resourcev1.ResourceSlice) ([]v1alpha1.NodeTypeDevice, error) {
	nodes, newest := map[string]bool{}, map[resourcev1.ResourcePool]int64{}
	var order []string
	drivers := map[string]*publishedDriver{}
	pool := func(slice resourcev1.ResourceSlice) resourcev1.ResourcePool {
		return resourcev1.ResourcePool{Name: slice.Spec.Driver + "/" + slice.Spec.Pool.Name}
	}
	for _, slice := range published {
		newest[pool(slice)] = max(newest[pool(slice)], slice.Spec.Pool.Generation)
	}
	for _, slice := range published {
		node := ptr.Deref(slice.Spec.NodeName, "")
		if node == "" || slice.Spec.Pool.Generation < newest[pool(slice)] {
			continue // its devices belong to no server, or no longer exist
		}
		nodes[node] = true
		if drivers[slice.Spec.Driver] == nil {
			order, drivers[slice.Spec.Driver] = append(order, slice.Spec.Driver), &publishedDriver{name: slice.Spec.Driver}
		}
		driver := drivers[slice.Spec.Driver]
		driver.devices, driver.sets = append(driver.devices, slice.Spec.Devices...), append(driver.sets, slice.Spec.SharedCounters...)
	}
	switch {
	case len(nodes) == 0:
		return nil, errors.New("no ResourceSlice is of a node: a DRA driver must have published the devices of a server")
	case len(nodes) > 1:
		return nil, fmt.Errorf("the ResourceSlices are of the nodes %s: choose one by --field-selector spec.nodeName=NODE",
			strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
	}
	var proposed []v1alpha1.NodeTypeDevice
	for _, name := range order {
		groups, even := drivers[name].propose(true)
		if !even {
			groups, _ = drivers[name].propose(false)
		}
		proposed = append(proposed, groups...)
	}
	return proposed, devices.Validate(field.NewPath("devices"), proposed).ToAggregate()
}

// publishedDriver is what a driver has published for a server.
type publishedDriver struct {
	name    string
	devices []resourcev1.Device
	sets    []resourcev1.CounterSet
}

// likeDevices are the devices of one entry of a NodeType.
type likeDevices struct {
	devices []resourcev1.Device
	entry   v1alpha1.NodeTypeDevice
}

// propose returns the entries for the devices of a driver. If together is true, it merges like counter sets. even is
// false if the devices of an entry do not consume from the merged sets in turn.
func (d *publishedDriver) propose(together bool) (entries []v1alpha1.NodeTypeDevice, even bool) {
	sets, turns, members := d.counterSets(together)
	var order []string
	groups := map[string]*likeDevices{}
	for _, device := range d.devices {
		entry := v1alpha1.NodeTypeDevice{Driver: d.name, AllowMultipleAllocations: ptr.Deref(device.AllowMultipleAllocations, false)}
		for name, capacity := range device.Capacity {
			put(&entry.Capacity, string(name), capacity.Value)
			if capacity.RequestPolicy != nil && capacity.RequestPolicy.Default != nil {
				put(&entry.RequestPolicies, string(name), *capacity.RequestPolicy)
			}
		}
		for _, consumption := range device.ConsumesCounters {
			entry.ConsumesCounters = append(entry.ConsumesCounters, v1alpha1.NodeTypeCounterConsumption{
				CounterSet: members[consumption.CounterSet], Counters: amounts(consumption.Counters)})
		}
		key := asKey(entry, slices.Sorted(maps.Keys(device.Attributes)), deviceKind(device))
		if groups[key] == nil {
			order, groups[key] = append(order, key), &likeDevices{entry: entry}
		}
		groups[key].devices = append(groups[key].devices, device)
	}
	even = true
	unnamed := map[string]v1alpha1.NodeTypeCounterSet{}
	for _, set := range sets {
		unnamed[set.Name] = set
	}
	for _, key := range order {
		group := groups[key]
		even = group.dealOut(turns, unnamed) && even
		group.entry.Count = int32(len(group.devices))
		group.describe()
		entries = append(entries, group.entry)
	}
	if len(entries) > 0 {
		entries[0].SharedCounters = sets
	}
	return entries, even
}

// counterSets returns the counter sets of the driver in the form of a NodeType. For each published set it returns its
// position among like sets, and the name of these sets in the NodeType.
func (d *publishedDriver) counterSets(together bool) (sets []v1alpha1.NodeTypeCounterSet, turns map[string]int, names map[string]string) {
	positions := map[string]int{}
	turns, names = map[string]int{}, map[string]string{}
	for _, set := range d.sets {
		key := asKey(set.Counters)
		if !together {
			key = set.Name
		}
		n, known := positions[key]
		if !known {
			n = len(sets)
			positions[key] = n
			name := unused(cmp.Or(strings.Trim(number.ReplaceAllString(set.Name, ""), "-"), "set"), func(name string) bool {
				return slices.ContainsFunc(sets, func(other v1alpha1.NodeTypeCounterSet) bool { return other.Name == name })
			})
			sets = append(sets, v1alpha1.NodeTypeCounterSet{Name: name, Counters: amounts(set.Counters)})
		}
		turns[set.Name], names[set.Name] = int(sets[n].Count), sets[n].Name
		sets[n].Count++
	}
	return sets, turns, names
}

// dealOut sorts the devices so that they consume from the sets in turn, and reports whether that is possible.
func (l *likeDevices) dealOut(turns map[string]int, sets map[string]v1alpha1.NodeTypeCounterSet) bool {
	if len(l.entry.ConsumesCounters) == 0 {
		return true
	}
	round, rounds := map[string]int{}, map[string]int{}
	first := func(device resourcev1.Device) string { return device.ConsumesCounters[0].CounterSet }
	for _, device := range l.devices {
		rounds[device.Name] = round[first(device)]
		round[first(device)]++
	}
	slices.SortStableFunc(l.devices, func(a, b resourcev1.Device) int {
		if rounds[a.Name] != rounds[b.Name] {
			return rounds[a.Name] - rounds[b.Name]
		}
		return turns[first(a)] - turns[first(b)]
	})
	for n, device := range l.devices {
		for i, consumption := range device.ConsumesCounters {
			if turns[consumption.CounterSet] != n%max(1, int(sets[l.entry.ConsumesCounters[i].CounterSet].Count)) {
				return false
			}
		}
	}
	return true
}

// describe sets the PCIe roots of the devices, and the attributes with the same value on all of them.
func (l *likeDevices) describe() {
	var roots []string
	for _, device := range l.devices {
		if root := device.Attributes[devices.PCIeRoot].StringValue; root != nil {
			roots = append(roots, *root)
		}
	}
	if len(roots) == len(l.devices) {
		period := 1
		for period < len(roots) && !repeats(roots, period) {
			period++
		}
		l.entry.PCIeRoots = roots[:period]
	}
	for name, value := range l.devices[0].Attributes {
		if ofOneDevice.MatchString(string(name)) || slices.ContainsFunc(l.devices, func(other resourcev1.Device) bool {
			return asKey(other.Attributes[name]) != asKey(value)
		}) {
			continue
		}
		attribute := v1alpha1.NodeTypeDeviceAttribute{String: value.StringValue, Int: value.IntValue, Bool: value.BoolValue,
			Version: value.VersionValue}
		if attribute != (v1alpha1.NodeTypeDeviceAttribute{}) { // lists are not supported
			put(&l.entry.Attributes, string(name), attribute)
		}
	}
}

func repeats(values []string, period int) bool {
	for n := range values {
		if values[n] != values[n%period] {
			return false
		}
	}
	return true
}

// ofOneDevice matches names of attributes that identify one device. Even if a server has only one device, these are
// left out.
var ofOneDevice = regexp.MustCompile(`(?i)uuid|guid|serial|address|bus_?id|minor|index|pcieroot`)

// number matches the part of a counter set's name that distinguishes it from like sets.
var number = regexp.MustCompile(`-?[0-9]+`)

// deviceKind returns attributes that distinguish devices of the same size, as far as known: type and profile of a GPU
// and its partitions.
func deviceKind(device resourcev1.Device) (values []string) {
	for _, name := range []resourcev1.QualifiedName{"type", "productName", "profile"} {
		values = append(values, ptr.Deref(device.Attributes[name].StringValue, ""))
	}
	return values
}

func amounts(counters map[string]resourcev1.Counter) map[string]resource.Quantity {
	result := map[string]resource.Quantity{}
	for name, counter := range counters {
		result[name] = counter.Value
	}
	return result
}

func put[V any](values *map[string]V, name string, value V) {
	if *values == nil {
		*values = map[string]V{}
	}
	(*values)[name] = value
}

// asKey returns equal strings for equal values.
func asKey(values ...any) string {
	content, _ := json.Marshal(values) // the values came from JSON
	return string(content)
}
