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

// Fault is something wrong with one field of what a NodeType says of its devices.
type Fault struct {
	// Field, as it is written below the NodeType's spec: devices[0].attributes["model"].version.
	Field string
	// Value of the field, or what of it is wrong: a string or a number.
	Value any
	// Problem and remedy, as a clause that goes on from the value.
	Problem string
}

func (f Fault) String() string {
	if text, ok := f.Value.(string); ok {
		return fmt.Sprintf("%s: %q %s", f.Field, text, f.Problem)
	}
	return fmt.Sprintf("%s: %v %s", f.Field, f.Value, f.Problem)
}

// Validate returns the Faults as one error, nil if there are none.
func Validate(groups []v1alpha1.NodeTypeDevice) error {
	faults := Faults(groups)
	if len(faults) == 0 {
		return nil
	}
	clauses := make([]string, len(faults))
	for i := range faults {
		clauses[i] = faults[i].String()
	}
	return errors.New(strings.Join(clauses, "; "))
}

// Faults finds what the schema of NodeTypes cannot: values that no driver could publish, so that no claim is ever
// promised a device by them.
func Faults(groups []v1alpha1.NodeTypeDevice) []Fault {
	var faults []Fault
	for n, group := range groups {
		field := fmt.Sprintf("devices[%d]", n)
		if len(validation.IsDNS1123Subdomain(group.Driver)) > 0 {
			faults = append(faults, Fault{field + ".driver", group.Driver, "is not the DNS name of a driver: use a name like gpu.nvidia.com"})
		}
		if group.Count < 1 {
			faults = append(faults, Fault{field + ".count", group.Count, "devices are none: say how many there are, or remove the entry"})
		}
		faults = append(faults, attributeFaults(field, group)...)
		for _, name := range slices.Sorted(maps.Keys(group.Capacity)) {
			at := fmt.Sprintf("%s.capacity[%q]", field, name)
			if problem := nameProblem(name); problem != "" {
				faults = append(faults, Fault{at, name, problem})
			}
			if quantity := group.Capacity[name]; quantity.Sign() < 0 {
				faults = append(faults, Fault{at, quantity.String(), "is less than nothing: correct it"})
			}
		}
		if total := len(group.Attributes) + len(group.Capacity); total > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
			faults = append(faults,
				Fault{field, total, fmt.Sprintf("attributes and capacities are more than the %d that a device may have: remove some",
					resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice)})
		}
	}
	return faults
}

func attributeFaults(field string, group v1alpha1.NodeTypeDevice) []Fault {
	var faults []Fault
	for _, name := range slices.Sorted(maps.Keys(group.Attributes)) {
		at := fmt.Sprintf("%s.attributes[%q]", field, name)
		if problem := nameProblem(name); problem != "" {
			faults = append(faults, Fault{at, name, problem})
		}
		if name == string(PCIeRoot) && len(group.PCIeRoots) > 0 {
			faults = append(faults, Fault{at, name, "is what pcieRoots says already: remove one of them"})
		}
		value := group.Attributes[name]
		if set := countSet(value); set != 1 {
			faults = append(faults, Fault{at, set, "values are set: set exactly one of string, int, bool and version"})
		}
		if value.Version == nil {
			continue
		}
		if _, err := semver.Parse(*value.Version); err != nil {
			faults = append(faults,
				Fault{at + ".version", *value.Version, fmt.Sprintf("is not a semantic version (%v): write it like 1.2.3, or use string", err)})
		}
	}
	return faults
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

// nameProblem says what is wrong with the name of an attribute or a capacity, which is an identifier with or without a
// domain before it. It is empty if nothing is.
func nameProblem(name string) string {
	domain, id, qualified := strings.Cut(name, "/")
	if !qualified {
		domain, id = "", name
	}
	if qualified && (len(domain) > resourcev1.DeviceMaxDomainLength || len(validation.IsDNS1123Subdomain(domain)) > 0) {
		return fmt.Sprintf("has the domain %q, which is not a DNS name of at most %d characters: correct it", domain,
			resourcev1.DeviceMaxDomainLength)
	}
	if len(id) > resourcev1.DeviceMaxIDLength || !identifier.MatchString(id) {
		return fmt.Sprintf("is not an identifier of at most %d letters, digits and underscores: correct it", resourcev1.DeviceMaxIDLength)
	}
	return ""
}
