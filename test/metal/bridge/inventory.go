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

// newInventory puts properties and ports in the form of a later Ironic's inventory: the fields of it that the operator reads. What the
// BMC did not report is 0.
func newInventory(found properties, ports []port) (map[string]any, error) {
	numbers := map[string]int64{}
	for name, number := range map[string]json.Number{"cpus": found.Processors, "memory_mb": found.MemoryMiB, "local_gb": found.DiskGiB} {
		if number == "" {
			continue
		}
		var err error
		if numbers[name], err = number.Int64(); err != nil {
			return nil, fmt.Errorf("the property %s is %q, which is no whole number", name, number)
		}
	}
	disks := []map[string]any{}
	if gibibytes := numbers["local_gb"]; gibibytes > 0 {
		// Redfish does not have the name that an operating system will give it.
		disks = append(disks, map[string]any{"name": "/dev/sda", "size": (gibibytes + 1) << 30})
	}
	slices.SortFunc(ports, func(a, b port) int { return strings.Compare(a.Address, b.Address) })
	nics, processed := []map[string]string{}, map[string]any{}
	for n, port := range ports {
		name := fmt.Sprintf("eth%d", n)
		nics = append(nics, map[string]string{"name": name, "mac_address": port.Address})
		processed[name] = map[string]bool{"pxe_enabled": port.PXE}
	}
	return map[string]any{
		"inventory": map[string]any{
			"cpu":    map[string]any{"architecture": found.Architecture, "count": numbers["cpus"]},
			"memory": map[string]any{"physical_mb": numbers["memory_mb"]}, "disks": disks, "interfaces": nics,
			"system_vendor": map[string]string{"manufacturer": found.Vendor},
		},
		"plugin_data": map[string]any{"all_interfaces": processed},
	}, nil
}
