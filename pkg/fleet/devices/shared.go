// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// maxValidValues is how many values a policy may have. The API has no constant for this limit.
const maxValidValues = 10

// validatePolicies finds policies of a group at a path that would make the API server refuse the devices.
func validatePolicies(path *field.Path, group v1alpha1.NodeTypeDevice) (wrong field.ErrorList) {
	if len(group.RequestPolicies) > 0 && !group.AllowMultipleAllocations {
		wrong = append(wrong, field.Invalid(path.Child("allowMultipleAllocations"), false,
			"does not go with requestPolicies, which are for devices that several claims share: set it to true, or remove them"))
	}
	for _, name := range slices.Sorted(maps.Keys(group.RequestPolicies)) {
		policyPath := path.Child("requestPolicies").Key(strconv.Quote(name))
		has, found := group.Capacity[name]
		if !found {
			wrong = append(wrong, field.Invalid(policyPath, name,
				fmt.Sprintf("is no capacity of the device, which has %s: name one of them, or add it there", listed(group.Capacity))))
			continue
		}
		wrong = append(wrong, validatePolicy(policyPath, group.RequestPolicies[name], has)...)
	}
	return wrong
}

// listed returns the names of quantities, for people.
func listed(quantities map[string]resource.Quantity) string {
	if len(quantities) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(quantities)), ", ")
}

func validatePolicy(path *field.Path, policy resourcev1.CapacityRequestPolicy, has resource.Quantity) (wrong field.ErrorList) {
	refuse := func(child *field.Path, value fmt.Stringer, format string, args ...any) {
		wrong = append(wrong, field.Invalid(child, value.String(), fmt.Sprintf(format, args...)))
	}
	values, limits := policy.ValidValues, policy.ValidRange
	amounts := map[*field.Path]*resource.Quantity{path.Child("default"): policy.Default}
	for n := range values {
		amounts[path.Child("validValues").Index(n)] = &values[n]
	}
	rangePath := path.Child("validRange")
	if limits != nil {
		amounts[rangePath.Child("min")], amounts[rangePath.Child("max")] = limits.Min, limits.Max
	}
	for child, amount := range amounts {
		switch {
		case amount == nil:
		case amount.Sign() < 0:
			refuse(child, amount, "is less than nothing: correct it")
		case amount.Cmp(has) > 0:
			refuse(child, amount, "is more than the %s that the device has: lower it", &has)
		}
	}
	slices.SortFunc(wrong, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	switch {
	case len(values) > 0 && limits != nil:
		return append(wrong, field.Invalid(path, "validValues and validRange", "are two policies: remove one of them"))
	case policy.Default == nil:
		return append(wrong, field.Required(path.Child("default"), "set it to what a claim takes that requests nothing"))
	case len(values) == 0 && limits == nil:
		return wrong
	case limits != nil && limits.Min == nil:
		return append(wrong, field.Required(rangePath.Child("min"), "is the least that a claim gets: set it"))
	case limits != nil:
		return append(wrong, validateRange(rangePath, *policy.Default, *limits, has)...)
	}
	if len(values) > maxValidValues {
		wrong = append(wrong, field.Invalid(path.Child("validValues"), len(values),
			fmt.Sprintf("values are more than the %d that a policy may have: remove some", maxValidValues)))
	}
	for n := 1; n < len(values); n++ {
		if values[n].Cmp(values[n-1]) <= 0 {
			refuse(path.Child("validValues").Index(n), &values[n], "is not more than the value before it: write them in ascending order")
		}
	}
	if !slices.ContainsFunc(values, func(value resource.Quantity) bool { return value.Cmp(*policy.Default) == 0 }) {
		refuse(path.Child("default"), policy.Default, "is not among validValues: set it to one of them, or add it there")
	}
	return wrong
}

// validateRange finds limits that exclude the default, and steps that miss it.
func validateRange(path *field.Path, byDefault resource.Quantity, limits resourcev1.CapacityRequestPolicyRange,
	has resource.Quantity) (wrong field.ErrorList) {
	refuse := func(child string, value resource.Quantity, format string, args ...any) {
		wrong = append(wrong, field.Invalid(path.Child(child), value.String(), fmt.Sprintf(format, args...)))
	}
	if limits.Min.Cmp(byDefault) > 0 {
		refuse("min", *limits.Min, "is more than the default of %s: lower it", &byDefault)
	}
	if limits.Max != nil && limits.Max.Cmp(byDefault) < 0 {
		refuse("max", *limits.Max, "is less than the default of %s: raise it", &byDefault)
	}
	if limits.Step == nil {
		return wrong
	}
	step, after := *limits.Step, limits.Min.DeepCopy()
	after.Add(step)
	if step.Sign() <= 0 {
		refuse("step", step, "is no step: set it to more than zero, or remove it")
		return wrong
	}
	if after.Cmp(has) > 0 {
		refuse("step", step, "is more than the device has beyond min: lower it, or remove it")
	}
	misses := func(value *resource.Quantity, name string) {
		if value != nil && (value.Value()-limits.Min.Value())%step.Value() != 0 {
			refuse("step", step, "does not lead from min to %s, which is %s: change one of them", name, value)
		}
	}
	misses(&byDefault, "the default")
	misses(limits.Max, "max")
	return wrong
}

// validateCounters finds counter sets at a path that no driver could publish, and devices that no claim could get.
func validateCounters(path *field.Path, groups []v1alpha1.NodeTypeDevice) (wrong field.ErrorList) {
	sets, seen := setsOf(groups), map[setID]bool{}
	for n, group := range groups {
		for i, set := range group.SharedCounters {
			setPath, id := path.Index(n).Child("sharedCounters").Index(i), setID{group.Driver, set.Name}
			if problem := labelProblem(set.Name); problem != "" {
				wrong = append(wrong, field.Invalid(setPath.Child("name"), set.Name, problem))
			}
			if seen[id] {
				wrong = append(wrong, field.Invalid(setPath.Child("name"), set.Name,
					fmt.Sprintf("is the name of two counter sets of driver %s: rename one of them", group.Driver)))
			}
			seen[id] = true
			wrong = append(wrong, validateAmounts(setPath.Child("counters"), set.Counters)...)
		}
		for i, consumption := range group.ConsumesCounters {
			consumptionPath := path.Index(n).Child("consumesCounters").Index(i)
			set, found := sets[setID{group.Driver, consumption.CounterSet}]
			if !found {
				wrong = append(wrong, field.Invalid(consumptionPath.Child("counterSet"), consumption.CounterSet, fmt.Sprintf(
					"is not the name of a counter set: write one that sharedCounters of an entry of driver %s has", group.Driver)))
				continue
			}
			if slices.ContainsFunc(group.ConsumesCounters[:i], func(other v1alpha1.NodeTypeCounterConsumption) bool {
				return other.CounterSet == consumption.CounterSet
			}) {
				wrong = append(wrong, field.Invalid(consumptionPath.Child("counterSet"), consumption.CounterSet,
					"is consumed from twice: write all counters in one entry"))
			}
			wrong = append(wrong, validateConsumption(consumptionPath.Child("counters"), consumption, set)...)
		}
	}
	return wrong
}

func validateConsumption(path *field.Path, consumption v1alpha1.NodeTypeCounterConsumption,
	set v1alpha1.NodeTypeCounterSet) field.ErrorList {
	wrong := validateAmounts(path, consumption.Counters)
	for _, name := range slices.Sorted(maps.Keys(consumption.Counters)) {
		has, found := set.Counters[name]
		consumed := consumption.Counters[name]
		switch {
		case !found:
			wrong = append(wrong, field.Invalid(path.Key(strconv.Quote(name)), name, fmt.Sprintf(
				"is no counter of counter set %s, which has %s: name one of them, or add it there", set.Name, listed(set.Counters))))
		case consumed.Cmp(has) > 0:
			wrong = append(wrong, field.Invalid(path.Key(strconv.Quote(name)), consumed.String(), fmt.Sprintf(
				"is more than the %s that counter set %s has: no claim could get the device; lower it", &has, set.Name)))
		}
	}
	return wrong
}

func validateAmounts(path *field.Path, counters map[string]resource.Quantity) (wrong field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		counterPath := path.Key(strconv.Quote(name))
		if problem := labelProblem(name); problem != "" {
			wrong = append(wrong, field.Invalid(counterPath, name, problem))
		}
		amount := counters[name]
		if amount.Sign() < 0 {
			wrong = append(wrong, field.Invalid(counterPath, amount.String(), "is less than nothing: correct it"))
		}
		// Core rounds up the rest of a counter. With a fraction, it would give out a whole device while a part of the
		// device is in use.
		if resource.NewQuantity(amount.Value(), amount.Format).Cmp(amount) != 0 {
			wrong = append(wrong, field.Invalid(counterPath, amount.String(), "is not a whole number: multiply this counter, wherever it is "+
				"written, so that it is one"))
		}
	}
	return wrong
}

// labelProblem returns what is wrong with the name of a counter or a counter set. It returns "" if the name is valid.
func labelProblem(name string) string {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return ""
	}
	return "is not a DNS label of lower-case letters, digits and dashes: use a name like memory-slice-0"
}
