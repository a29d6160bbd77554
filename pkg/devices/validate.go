// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// identifier is what the API of Dynamic Resource Allocation takes for the name of an attribute or a capacity, after its
// domain.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Validate finds what the schema of NodeTypes cannot: values that no driver could publish, so that no claim is ever
// promised a device by them. The error has a clause for each, with the field, the value and what to do.
func Validate(groups []v1alpha1.NodeTypeDevice) error {
	var problems []string
	for n, group := range groups {
		field := fmt.Sprintf("devices[%d]", n)
		if faults := validation.IsDNS1123Subdomain(group.Driver); len(faults) > 0 {
			problems = append(problems, fmt.Sprintf("%s.driver: %q is not the DNS name of a driver: use a name like gpu.nvidia.com", field, group.Driver))
		}
		if group.Count < 1 {
			problems = append(problems, fmt.Sprintf("%s.count: %d devices are none: say how many there are, or remove the entry", field, group.Count))
		}
		problems = append(problems, validateAttributes(field, group)...)
		for _, name := range slices.Sorted(maps.Keys(group.Capacity)) {
			if err := validateName(name); err != nil {
				problems = append(problems, fmt.Sprintf("%s.capacity[%s]: %v", field, name, err))
			}
			if quantity := group.Capacity[name]; quantity.Sign() < 0 {
				problems = append(problems, fmt.Sprintf("%s.capacity[%s]: %s is less than nothing: correct it", field, name, quantity.String()))
			}
		}
		if total := len(group.Attributes) + len(group.Capacity); total > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
			problems = append(problems, fmt.Sprintf("%s: %d attributes and capacities are more than the %d that a device may have: remove some",
				field, total, resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

func validateAttributes(field string, group v1alpha1.NodeTypeDevice) []string {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(group.Attributes)) {
		if err := validateName(name); err != nil {
			problems = append(problems, fmt.Sprintf("%s.attributes[%s]: %v", field, name, err))
		}
		if name == string(PCIeRoot) && len(group.PCIeRoots) > 0 {
			problems = append(problems, fmt.Sprintf("%s.attributes[%s]: pcieRoots says which devices share a root: remove one of them", field, name))
		}
		value := group.Attributes[name]
		if set := countSet(value); set != 1 {
			problems = append(problems, fmt.Sprintf("%s.attributes[%s]: %d values are set: set exactly one of string, int, bool and version", field, name, set))
		}
		if value.Version == nil {
			continue
		}
		if _, err := semver.Parse(*value.Version); err != nil {
			problems = append(problems, fmt.Sprintf("%s.attributes[%s].version: %q is not a semantic version (%v): write it like 1.2.3, or use string", field, name, *value.Version, err))
		}
	}
	return problems
}

func countSet(value v1alpha1.NodeTypeDeviceAttribute) int {
	count := 0
	for _, set := range []bool{value.String != nil, value.Int != nil, value.Bool != nil, value.Version != nil} {
		if set {
			count++
		}
	}
	return count
}

// validateName checks the name of an attribute or a capacity: an identifier, with or without a domain before it.
func validateName(name string) error {
	domain, id, qualified := strings.Cut(name, "/")
	if !qualified {
		domain, id = "", name
	}
	if qualified && (len(domain) > resourcev1.DeviceMaxDomainLength || len(validation.IsDNS1123Subdomain(domain)) > 0) {
		return fmt.Errorf("its domain %q is not a DNS name of at most %d characters: correct it", domain, resourcev1.DeviceMaxDomainLength)
	}
	if len(id) > resourcev1.DeviceMaxIDLength || !identifier.MatchString(id) {
		return fmt.Errorf("%q is not an identifier of at most %d letters, digits and underscores: correct it", id, resourcev1.DeviceMaxIDLength)
	}
	return nil
}
