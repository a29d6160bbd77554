// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// maxCount bounds the servers of one template, so that a typo does not fill the machine.
const maxCount = 10000

// validate returns the first error of a template, beginning with the name of the field.
func (t template) validate() error {
	if t.Name == "" {
		return fmt.Errorf("name: is missing; give the server a name")
	}
	if faults := validation.IsDNS1123Label(t.Name); len(faults) > 0 {
		return fmt.Errorf("name: %q cannot be a server's name: %s", t.Name, strings.Join(faults, ", "))
	}
	if t.Count != nil {
		if *t.Count < 1 || *t.Count > maxCount {
			return fmt.Errorf("count: %d is not between 1 and %d", *t.Count, maxCount)
		}
		if names := t.names(); len(names[len(names)-1]) > validation.DNS1123LabelMaxLength {
			return fmt.Errorf("name: %q is too long for its count; names have at most %d characters", t.Name, validation.DNS1123LabelMaxLength)
		}
	}
	if architectures := []string{"", AMD64, ARM64}; !slices.Contains(architectures, t.Architecture) {
		return fmt.Errorf("architecture: %q of server %s is not known; write %s or %s", t.Architecture, t.Name, AMD64, ARM64)
	}
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		if faults := validation.IsQualifiedName(key); len(faults) > 0 {
			return fmt.Errorf("labels: key %q of server %s is not a label key: %s", key, t.Name, strings.Join(faults, ", "))
		}
		if faults := validation.IsValidLabelValue(t.Labels[key]); len(faults) > 0 {
			return fmt.Errorf("labels[%s]: %q of server %s is not a label value: %s", key, t.Labels[key], t.Name, strings.Join(faults, ", "))
		}
	}
	if err := t.validateCapacity(); err != nil {
		return err
	}
	_, err := t.devices()
	return err
}

func (t template) validateCapacity() error {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, ok := t.Capacity[string(name)]; !ok {
			return fmt.Errorf("capacity: server %s has no %s; say how much it has", t.Name, name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Capacity)) {
		if faults := validation.IsQualifiedName(key); len(faults) > 0 {
			return fmt.Errorf("capacity: %q of server %s is not the name of a resource: %s", key, t.Name, strings.Join(faults, ", "))
		}
		value := t.Capacity[key]
		quantity, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("capacity[%s]: %q of server %s is not a quantity; write a number such as 8 or 512Gi", key, value, t.Name)
		}
		if quantity.Sign() <= 0 {
			return fmt.Errorf("capacity[%s]: %q of server %s is not positive; leave out what the server does not have", key, value, t.Name)
		}
		// Devices and bytes are whole numbers.
		if key != string(corev1.ResourceCPU) && quantity.MilliValue()%1000 != 0 {
			return fmt.Errorf("capacity[%s]: %q of server %s is not a whole number", key, value, t.Name)
		}
	}
	return nil
}

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
