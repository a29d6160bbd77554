// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errNotInspected: there is no data for an inventory.
var errNotInspected = errors.New("the node has not been inspected")

// node has the fields of a node that the bridge reads.
type node struct {
	UUID               string     `json:"uuid"`
	InspectionFinished *string    `json:"inspection_finished_at"`
	Properties         properties `json:"properties"`
}

// properties are those that an inspection by Redfish sets. Ironic writes numbers as strings, but for the processors.
type properties struct {
	Vendor       string      `json:"vendor"`
	Architecture string      `json:"cpu_arch"`
	Processors   json.Number `json:"cpus"`
	// MemoryMiB, and the size of the smallest disk in GiB less one, which is how Ironic reports disks.
	MemoryMiB json.Number `json:"memory_mb"`
	DiskGiB   json.Number `json:"local_gb"`
}

// port is a network interface. Ironic 21.4 makes one for each that the BMC says is enabled.
type port struct {
	Address string `json:"address"`
	PXE     bool   `json:"pxe_enabled"`
}

// inventory has the fields of a later Ironic's inventory that the operator reads.
type inventory struct {
	Inventory  hardware   `json:"inventory"`
	PluginData pluginData `json:"plugin_data"`
}

type hardware struct {
	CPU          processors   `json:"cpu"`
	Memory       memory       `json:"memory"`
	Disks        []disk       `json:"disks"`
	Interfaces   []nic        `json:"interfaces"`
	SystemVendor systemVendor `json:"system_vendor"`
}

type processors struct {
	Architecture string `json:"architecture"`
	Count        int64  `json:"count"`
}

type memory struct {
	PhysicalMiB int64 `json:"physical_mb"`
}

type disk struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

type nic struct {
	Name    string `json:"name"`
	Address string `json:"mac_address"`
}

type systemVendor struct {
	Manufacturer string `json:"manufacturer"`
}

type pluginData struct {
	Interfaces map[string]processedNIC `json:"all_interfaces"`
}

type processedNIC struct {
	PXE bool `json:"pxe_enabled"`
}

// inventory makes the inventory of a node, as JSON. The error is errNotInspected if Ironic has not inspected it.
func (b *Bridge) inventory(ctx context.Context, name string) ([]byte, error) {
	var found node
	if err := b.get(ctx, "/v1/nodes/"+name, &found); err != nil {
		return nil, err
	}
	if found.InspectionFinished == nil {
		return nil, errNotInspected
	}
	var ports struct {
		Ports []port `json:"ports"`
	}
	if err := b.get(ctx, "/v1/nodes/"+found.UUID+"/ports/detail", &ports); err != nil {
		return nil, err
	}
	made, err := newInventory(found.Properties, ports.Ports)
	if err != nil {
		return nil, fmt.Errorf("making the inventory of node %s, %w", name, err)
	}
	return json.Marshal(made)
}

// newInventory puts properties and ports in the form of an inventory.
func newInventory(found properties, ports []port) (*inventory, error) {
	made := &inventory{PluginData: pluginData{Interfaces: map[string]processedNIC{}}}
	made.Inventory.SystemVendor.Manufacturer = found.Vendor
	made.Inventory.CPU.Architecture = found.Architecture
	var gibibytes int64
	for name, field := range map[string]struct {
		from json.Number
		to   *int64
	}{
		"cpus":      {found.Processors, &made.Inventory.CPU.Count},
		"memory_mb": {found.MemoryMiB, &made.Inventory.Memory.PhysicalMiB},
		"local_gb":  {found.DiskGiB, &gibibytes},
	} {
		if field.from == "" {
			continue // the BMC did not report it
		}
		number, err := field.from.Int64()
		if err != nil {
			return nil, fmt.Errorf("the property %s is %q, which is no whole number", name, field.from)
		}
		*field.to = number
	}
	if gibibytes > 0 {
		// Redfish does not have the name that an operating system will give it.
		made.Inventory.Disks = []disk{{Name: "/dev/sda", Size: (gibibytes + 1) << 30}}
	}
	slices.SortFunc(ports, func(a, b port) int { return strings.Compare(a.Address, b.Address) })
	for n, port := range ports {
		name := fmt.Sprintf("eth%d", n)
		made.Inventory.Interfaces = append(made.Inventory.Interfaces, nic{Name: name, Address: port.Address})
		made.PluginData.Interfaces[name] = processedNIC{PXE: port.PXE}
	}
	return made, nil
}
