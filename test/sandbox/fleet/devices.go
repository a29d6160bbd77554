// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// devices are written as in a NodeType.
func (t template) devices() ([]v1alpha1.NodeTypeDevice, error) {
	if len(t.Devices) == 0 {
		return nil, nil
	}
	content, err := json.Marshal(t.Devices)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var groups []v1alpha1.NodeTypeDevice
	if err := decoder.Decode(&groups); err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	return groups, devices.Validate(field.NewPath("devices"), groups).ToAggregate()
}
