// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package properties

import (
	"fmt"
	"maps"
	"slices"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// CheckLength returns an error if the properties are too long for a Machine.
func CheckLength(properties map[string]string) error {
	total := 0
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		if length := len(properties[key]); length > v1alpha1.MaxPropertyLength {
			return fmt.Errorf("the value of %s has %d bytes, and a property has at most %d: have the server fetch large files at boot, or refer "+
				"to a MachineConfigTemplate", key, length, v1alpha1.MaxPropertyLength)
		}
		total += len(key) + len(properties[key])
	}
	if total > v1alpha1.MaxPropertiesLength {
		return fmt.Errorf("all keys and values have %d bytes together, and may have %d: have the server fetch large files at boot, or refer "+
			"to a MachineConfigTemplate", total, v1alpha1.MaxPropertiesLength)
	}
	return nil
}
