// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/inspection"
)

// errNotInspected says that there is nothing to make an inventory of.
var errNotInspected = errors.New("the node has not been inspected")

// masked is what Ironic answers for a password, unless its policy show_password is to show it.
const masked = "******"

// node is what the bridge reads of a node.
type node struct {
	UUID               string            `json:"uuid"`
	InspectionFinished *string           `json:"inspection_finished_at"`
	BMC                inspection.Access `json:"driver_info"`
}

// port is a network interface. Ironic 21.4 makes one for each that the BMC says is enabled.
type port struct {
	Address string `json:"address"`
	PXE     bool   `json:"pxe_enabled"`
}

// inventory is what later versions of Ironic answer.
type inventory struct {
	Inventory  *inspection.Inventory `json:"inventory"`
	PluginData pluginData            `json:"plugin_data"`
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
	if found.BMC.Password == masked {
		return nil, fmt.Errorf("making the inventory of node %s, Ironic does not tell the password of its BMC: set the policy show_password to \"\"", name)
	}
	var ports struct {
		Ports []port `json:"ports"`
	}
	if err := b.get(ctx, "/v1/nodes/"+found.UUID+"/ports/detail", &ports); err != nil {
		return nil, err
	}
	read, err := inspection.Read(ctx, found.BMC)
	if err != nil {
		return nil, fmt.Errorf("making the inventory of node %s, %w", name, err)
	}
	return json.Marshal(inventory{Inventory: read, PluginData: newPluginData(read.Interfaces, ports.Ports)})
}

// newPluginData says which interfaces boot by network, which Ironic decides and the BMC does not know.
func newPluginData(interfaces []inspection.Interface, ports []port) pluginData {
	data := pluginData{Interfaces: map[string]processedNIC{}}
	for _, known := range interfaces {
		for _, port := range ports {
			if strings.EqualFold(port.Address, known.MAC) {
				data.Interfaces[known.Name] = processedNIC{PXE: port.PXE}
			}
		}
	}
	return data
}
