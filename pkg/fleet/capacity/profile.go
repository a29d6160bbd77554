// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package capacity reads the hardware profile of a NodeType: its allocatable resources, its accelerators, and the selector
// of its BareMetalHosts.
package capacity

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// Selector parses a selector of hosts part by part, so that the error can name the part that is wrong.
func Selector(from metav1.LabelSelector) (labels.Selector, error) {
	for key, value := range from.MatchLabels {
		one := &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
		if _, err := metav1.LabelSelectorAsSelector(one); err != nil {
			return nil, fmt.Errorf("bareMetalHosts.selector.matchLabels (%s: %s) is not valid: %w", key, value, err)
		}
	}
	for n, requirement := range from.MatchExpressions {
		one := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{requirement}}
		if _, err := metav1.LabelSelectorAsSelector(one); err != nil {
			return nil, fmt.Errorf("bareMetalHosts.selector.matchExpressions[%d] (%s %s [%s]) is not valid: %w",
				n, requirement.Key, requirement.Operator, strings.Join(requirement.Values, ", "), err)
		}
	}
	return metav1.LabelSelectorAsSelector(&from)
}

// Accelerators of one server, for people to read: resources by name and devices by driver, "nvidia.com/gpu=8".
func Accelerators(profile *v1alpha1.HardwareProfile) string {
	var parts []string
	for _, name := range v1alpha1.Accelerators(profile.Resources) {
		quantity := profile.Resources[name]
		parts = append(parts, fmt.Sprintf("%s=%s", name, quantity.String()))
	}
	for _, driver := range devices.Expand(profile.Devices) {
		parts = append(parts, fmt.Sprintf("%s=%d", driver.Name, len(driver.Devices)))
	}
	return strings.Join(parts, ", ")
}

// Describe writes the capacity of a type for people to read: "2 servers match in rack r1, 2 claimed, 0 in error". NotReady
// are the servers that cannot be claimed for a reason that the capacity does not count, such as being inspected.
func Describe(c v1alpha1.Capacity, notReady int32, where string) string {
	noun := "servers match"
	switch c.Total {
	case 0:
		return "no server matches" + where
	case 1:
		noun = "server matches"
	}
	text := fmt.Sprintf("%d %s%s, %d claimed, %d in error", c.Total, noun, where, c.Claimed, c.Error)
	if c.Quarantined > 0 {
		text += fmt.Sprintf(", %d quarantined", c.Quarantined)
	}
	if notReady > 0 {
		text += fmt.Sprintf(", %d not ready", notReady)
	}
	if c.TooSmall > 0 { // last: their names may follow
		text += fmt.Sprintf(", %d too small", c.TooSmall)
	}
	return text
}
