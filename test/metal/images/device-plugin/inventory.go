// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// inventory are the IDs of a server's devices, by the name of their resource, such as nvidia.com/gpu.
type inventory map[string][]string

func readInventory(path string) (inventory, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the inventory, %w", err)
	}
	devices := inventory{}
	if err := json.Unmarshal(content, &devices); err != nil {
		return nil, fmt.Errorf("reading the inventory %s, it is not an object of resource names with lists of device IDs, such as "+
			"{\"nvidia.com/gpu\": [\"GPU-0\"]}: %w", path, err)
	}
	for _, resource := range slices.Sorted(maps.Keys(devices)) {
		if problems := validation.IsQualifiedName(resource); len(problems) > 0 || !strings.Contains(resource, "/") {
			return nil, fmt.Errorf("reading the inventory %s, %q is not the name of an extended resource, such as nvidia.com/gpu", path, resource)
		}
		ids := slices.Sorted(slices.Values(devices[resource]))
		if len(slices.Compact(ids)) != len(devices[resource]) || slices.Contains(devices[resource], "") {
			return nil, fmt.Errorf("reading the inventory %s, the devices of %s do not each have an ID of their own", path, resource)
		}
	}
	return devices, nil
}
