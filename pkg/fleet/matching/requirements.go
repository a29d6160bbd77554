// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package matching

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// operators are those of label selectors, by those of node selectors.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

// nodeTypeOperators are those of node selectors, by those of nodeTypeSelectors. A nodeTypeSelector without an operator
// means In.
var nodeTypeOperators = map[v1alpha1.SelectorOperator]corev1.NodeSelectorOperator{
	"":                         corev1.NodeSelectorOpIn,
	v1alpha1.SelectorIn:        corev1.NodeSelectorOpIn,
	v1alpha1.SelectorNotIn:     corev1.NodeSelectorOpNotIn,
	v1alpha1.SelectorExists:    corev1.NodeSelectorOpExists,
	v1alpha1.SelectorNotExists: corev1.NodeSelectorOpDoesNotExist,
}

// Requirements converts the requirements of a node selector. It returns those that are valid, and what is wrong with the
// others by field below the path.
func Requirements(path *field.Path, from []corev1.NodeSelectorRequirement) (valid []labels.Requirement, wrong field.ErrorList) {
	for i := range from {
		one, errs := Requirement(path.Index(i), from[i])
		if wrong = append(wrong, errs...); one != nil {
			valid = append(valid, *one)
		}
	}
	return valid, wrong
}

// Requirement converts one requirement of a node selector. It returns nil if the requirement is not valid.
func Requirement(path *field.Path, from corev1.NodeSelectorRequirement) (*labels.Requirement, field.ErrorList) {
	operator, known := operators[from.Operator]
	if !known {
		supported := []corev1.NodeSelectorOperator{corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpGt,
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpLt, corev1.NodeSelectorOpNotIn}
		return nil, field.ErrorList{field.NotSupported(path.Child("operator"), from.Operator, supported)}
	}
	one, err := labels.NewRequirement(from.Key, operator, from.Values, field.WithPath(path))
	if err == nil {
		return one, nil
	}
	var aggregate interface{ Errors() []error }
	if !errors.As(err, &aggregate) {
		return nil, field.ErrorList{field.Invalid(path, from.Key, err.Error())}
	}
	var wrong field.ErrorList
	for _, err := range aggregate.Errors() {
		detail := err.Error()
		var one *field.Error
		if errors.As(err, &one) {
			detail = one.Detail
		}
		wrong = append(wrong, field.Invalid(path, from.Key+" "+string(from.Operator), detail))
	}
	return nil, wrong
}

// NodeTypeSelector converts an entry of a nodeTypeSelector, and says what is wrong with its operator or values by field
// below the path. It does not look at how the property and the values are written: Requirement does.
func NodeTypeSelector(path *field.Path, entry v1alpha1.NodeTypeSelectorRequirement) (corev1.NodeSelectorRequirement, *field.Error) {
	operator, known := nodeTypeOperators[entry.Operator]
	converted := corev1.NodeSelectorRequirement{Key: entry.Property, Operator: operator, Values: entry.Values}
	if entry.Value != "" {
		converted.Values = []string{entry.Value}
	}
	takesValues := operator == corev1.NodeSelectorOpIn || operator == corev1.NodeSelectorOpNotIn
	switch {
	case !known:
		return converted, field.NotSupported(path.Child("operator"), entry.Operator,
			[]v1alpha1.SelectorOperator{v1alpha1.SelectorIn, v1alpha1.SelectorNotIn, v1alpha1.SelectorExists, v1alpha1.SelectorNotExists})
	case takesValues && entry.Value != "" && len(entry.Values) > 0:
		return converted, field.Invalid(path.Child("value"), entry.Value, "there are values too: write one of value and values")
	case takesValues && len(converted.Values) == 0:
		return converted, field.Required(path.Child("value"), "In and NotIn compare with values: write value or values")
	case !takesValues && len(converted.Values) > 0:
		given := strings.Join(append([]string{entry.Value}, entry.Values...), " ")
		return converted, field.Invalid(path.Child("value"), given,
			"Exists and NotExists take neither value nor values: leave them out, or write In or NotIn")
	}
	return converted, nil
}

// Unmet returns the first requirement that the labels do not meet, or nil.
func Unmet(requirements []labels.Requirement, set labels.Labels) *labels.Requirement {
	for n := range requirements {
		if !requirements[n].Matches(set) {
			return &requirements[n]
		}
	}
	return nil
}

// Offered are the values that the labels of a NodeType's nodes can have, by label. A label with an empty list can have any
// value, or its values are not known yet, because the type has no server. A label that is missing is on none of the nodes.
type Offered map[string][]string

// OfferedBy returns what the status of a NodeType offers, and what is known of its nodes without that.
func OfferedBy(nodeType *v1alpha1.NodeType) Offered {
	offered := Offered{
		v1alpha1.NodeTypeLabelKey:      {nodeType.Name},
		corev1.LabelInstanceTypeStable: {nodeType.Name},
		corev1.LabelOSStable:           {string(corev1.Linux)},
		corev1.LabelTopologyZone:       nil,
		corev1.LabelArchStable:         nil,
	}
	for _, requirement := range nodeType.Status.Requirements {
		offered[requirement.Key] = requirement.Values
	}
	return offered
}

// Meets returns whether some node of the type meets the requirement, whether or not its server is free.
func (o Offered) Meets(requirement *labels.Requirement) bool {
	values, has := o[requirement.Key()]
	if !has {
		return requirement.Matches(labels.Set{})
	}
	return len(values) == 0 && requirement.Operator() != selection.DoesNotExist || slices.ContainsFunc(values, func(value string) bool {
		return requirement.Matches(labels.Set{requirement.Key(): value})
	})
}

// Unmet returns the requirements that no node of the type meets, each taken by itself.
func (o Offered) Unmet(requirements []labels.Requirement) (unmet []*labels.Requirement) {
	for n := range requirements {
		if !o.Meets(&requirements[n]) {
			unmet = append(unmet, &requirements[n])
		}
	}
	return unmet
}
