// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package matching decides whether a NodeType fits a request, and returns the reasons as values for callers to format.
// The manager, the webhook and the provider use it for Machines, NodePools and pods. It needs no client or host.
package matching

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// Type describes what all servers of a NodeType have in common. A request is compared with it.
type Type struct {
	// Name is the name of the NodeType. MadeBy is the NodeProvider that made it, empty if it was made by hand.
	Name, MadeBy string
	// Server is one server as the NodeType declares it.
	Server capacity.Server
	// Drivers are the DRA drivers that publish devices on one server, sorted.
	Drivers []string
	// Undeclared are signs of accelerators that the type does not declare. Nothing can request these accelerators.
	Undeclared []string
	// allocatable is what a kubelet without arguments leaves of the server for pods.
	allocatable corev1.ResourceList
}

// NewType returns a type for many comparisons. Most requests have no arguments for the kubelet.
func NewType(name, madeBy string, server capacity.Server, drivers, undeclared []string) Type {
	return Type{Name: name, MadeBy: madeBy, Server: server, Drivers: drivers, Undeclared: undeclared,
		allocatable: capacity.Kubelet{}.Allocatable(server)}
}

// TypeOf describes a NodeType.
func TypeOf(nodeType *v1alpha1.NodeType) Type {
	return NewType(nodeType.Name, nodeType.MadeBy(), capacity.Declared(nodeType), nodeType.Spec.Drivers(), nodeType.Undeclared())
}

// Request is what a node must have.
type Request struct {
	// NodeType is the name of the wanted type. If it is set, it wins: neither resources nor accelerators are compared.
	NodeType string
	// Resources are what the node must have for pods.
	Resources corev1.ResourceList
	Kubelet   capacity.Kubelet
	// Drivers are the DRA drivers whose devices are requested.
	Drivers []string
	// Allowed reports whether the tenant may have a type. madeBy is its provider, if not made by hand. Nil allows all.
	Allowed func(nodeType, madeBy string) bool
}

// Reason is why a type does not fit a request.
type Reason string

// Reasons in the order of the checks.
const (
	// Fits: the type fits.
	Fits Reason = ""
	// TooSmall: the type has too little of a resource, or none of it.
	TooSmall Reason = "TooSmall"
	// Accelerated: the type has accelerators, and the request has none of them.
	Accelerated Reason = "Accelerated"
	// NotAllowed: the tenant may not have the type.
	NotAllowed Reason = "NotAllowed"
)

// Mismatch is why a type does not fit. The zero Mismatch means that the type fits.
type Mismatch struct {
	Reason Reason
	// Short are the resources that the type has too little of, sorted by name. Set for TooSmall.
	Short []Shortage
	// Accelerators of the type: resources, then drivers. Set for Accelerated.
	Accelerators []string
	// Undeclared accelerators of the type. Set for TooSmall if accelerators are missing.
	Undeclared []string
}

// Shortage is a resource that a type has less of for pods than a request asks for.
type Shortage struct {
	Name       corev1.ResourceName
	Asked, Has resource.Quantity
	// Missing is true if the type does not have the resource at all.
	Missing bool
}

// Check compares the type with a request. It does not compare labels: see Offered.
func (t *Type) Check(request *Request) Mismatch {
	if request.NodeType == "" {
		if short := t.short(request); len(short) > 0 {
			mismatch := Mismatch{Reason: TooSmall, Short: short}
			if slices.ContainsFunc(short, func(s Shortage) bool { return s.Missing && v1alpha1.IsAccelerator(s.Name) }) {
				mismatch.Undeclared = t.Undeclared
			}
			return mismatch
		}
		if !v1alpha1.AsksForAccelerator(request.Resources, t.Server.Resources) && !v1alpha1.AsksForDriver(request.Drivers, t.Drivers) {
			if all := t.Accelerators(); len(all) > 0 {
				return Mismatch{Reason: Accelerated, Accelerators: all}
			}
			// A claim that names only types, as for a static NodePool, asks for nothing that could be wrong.
			if len(t.Undeclared) > 0 && len(request.Resources) > 0 && len(request.Drivers) == 0 {
				return Mismatch{Reason: Accelerated, Accelerators: t.Undeclared}
			}
		}
	}
	if request.Allowed != nil && !request.Allowed(t.Name, t.MadeBy) {
		return Mismatch{Reason: NotAllowed}
	}
	return Mismatch{}
}

// Accelerators returns the accelerators of one server: resources, then drivers of devices.
func (t *Type) Accelerators() []string {
	var all []string
	for _, name := range v1alpha1.Accelerators(t.Server.Resources) {
		all = append(all, string(name))
	}
	return append(all, t.Drivers...)
}

// short returns the resources that the type has too little of. It ignores the number of pods if the type does not
// mention it: only the kubelet knows that number.
func (t *Type) short(request *Request) (short []Shortage) {
	allocatable := t.allocatable
	if !request.Kubelet.IsDefault() {
		allocatable = request.Kubelet.Allocatable(t.Server)
	}
	for name, asked := range request.Resources {
		has, named := allocatable[name]
		if !named && name == corev1.ResourcePods || asked.Cmp(has) <= 0 {
			continue
		}
		short = append(short, Shortage{Name: name, Asked: asked, Has: has, Missing: !named})
	}
	slices.SortFunc(short, func(a, b Shortage) int { return cmp.Compare(a.Name, b.Name) })
	return short
}

// Describe says in a clause why the type does not fit: "too small: asks memory 512Gi, has 256Gi". It returns "" for a
// type that fits. The asker is what made the request: a pod or a Machine.
func (m Mismatch) Describe(asker string) string {
	switch m.Reason {
	case TooSmall:
		var missing, small []string
		unknown := false
		for _, short := range m.Short {
			switch {
			case short.Missing && (short.Name == corev1.ResourceCPU || short.Name == corev1.ResourceMemory):
				// every server has some
				unknown = true
			case short.Missing:
				missing = append(missing, string(short.Name))
			default:
				small = append(small, fmt.Sprintf("asks %s %s, has %s", short.Name, short.Asked.String(), short.Has.String()))
			}
		}
		switch {
		case len(missing) > 0:
			clause := "has no " + strings.Join(missing, ", ")
			if len(m.Undeclared) > 0 {
				clause += fmt.Sprintf(" in its resources, although its servers show accelerators (%s)", strings.Join(m.Undeclared, ", "))
			}
			return clause
		case unknown:
			return "of unknown size: resources leaves out cpu or memory, and Metal3 has inspected none of its servers"
		}
		return "too small: " + strings.Join(small, " and ")
	case Accelerated:
		return fmt.Sprintf("has accelerators (%s) and the %s requests none of them", strings.Join(m.Accelerators, ", "), asker)
	case NotAllowed:
		return "not allowed for this tenant"
	}
	return ""
}

// Foreign counts, in a clause, the types that a tenant may not have. Their names may belong to other customers.
func Foreign(count int) string {
	if count == 1 {
		return "1 NodeType is not for this tenant"
	}
	return fmt.Sprintf("%d NodeTypes are not for this tenant", count)
}

// operators converts operators of node selectors to operators of label selectors.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

// nodeTypeOperators converts operators of nodeTypeSelectors to operators of node selectors. No operator means In.
var nodeTypeOperators = map[v1alpha1.SelectorOperator]corev1.NodeSelectorOperator{
	"":                         corev1.NodeSelectorOpIn,
	v1alpha1.SelectorIn:        corev1.NodeSelectorOpIn,
	v1alpha1.SelectorNotIn:     corev1.NodeSelectorOpNotIn,
	v1alpha1.SelectorExists:    corev1.NodeSelectorOpExists,
	v1alpha1.SelectorNotExists: corev1.NodeSelectorOpDoesNotExist,
}

// Requirements converts the requirements of a node selector. It returns the valid ones, and the errors of the others by
// field below the path.
func Requirements(path *field.Path, from []corev1.NodeSelectorRequirement) (valid []labels.Requirement, wrong field.ErrorList) {
	for i := range from {
		requirement, errs := Requirement(path.Index(i), from[i])
		if wrong = append(wrong, errs...); requirement != nil {
			valid = append(valid, *requirement)
		}
	}
	return valid, wrong
}

// Requirement converts one requirement of a node selector. Its key is ours if it is one of the reference. It returns nil if the
// requirement is not valid.
func Requirement(path *field.Path, from corev1.NodeSelectorRequirement) (*labels.Requirement, field.ErrorList) {
	operator, known := operators[from.Operator]
	if !known {
		supported := []corev1.NodeSelectorOperator{corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpGt,
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpLt, corev1.NodeSelectorOpNotIn}
		return nil, field.ErrorList{field.NotSupported(path.Child("operator"), from.Operator, supported)}
	}
	requirement, err := labels.NewRequirement(v1alpha1.CanonicalKey(from.Key), operator, from.Values, field.WithPath(path))
	if err == nil {
		return requirement, nil
	}
	var aggregate interface{ Errors() []error }
	if !errors.As(err, &aggregate) {
		return nil, field.ErrorList{field.Invalid(path, from.Key, err.Error())}
	}
	var wrong field.ErrorList
	for _, err := range aggregate.Errors() {
		detail := err.Error()
		var fieldError *field.Error
		if errors.As(err, &fieldError) {
			detail = fieldError.Detail
		}
		wrong = append(wrong, field.Invalid(path, from.Key+" "+string(from.Operator), detail))
	}
	return nil, wrong
}

// NodeTypeSelector converts an entry of a nodeTypeSelector. The error is about its operator or its values, by field
// below the path. Requirement, not NodeTypeSelector, checks the syntax of the property and the values.
func NodeTypeSelector(path *field.Path, entry v1alpha1.NodeTypeSelectorRequirement) (corev1.NodeSelectorRequirement, *field.Error) {
	operator, known := nodeTypeOperators[entry.Operator]
	converted := corev1.NodeSelectorRequirement{Key: v1alpha1.CanonicalKey(entry.Property), Operator: operator, Values: entry.Values}
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

// Offered are the values that the labels of a NodeType's nodes can have, by label. An empty list means that any value
// is possible, or that none is known yet, because the type has no server. A missing label is on none of the nodes.
type Offered map[string][]string

// OfferedBy returns the labels in the status of a NodeType, and the labels that its nodes have regardless of it.
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

// Meets reports whether some node of the type meets the requirement, whether or not its server is free.
func (o Offered) Meets(requirement *labels.Requirement) bool {
	values, has := o[requirement.Key()]
	if !has {
		return requirement.Matches(labels.Set{})
	}
	return len(values) == 0 && requirement.Operator() != selection.DoesNotExist || slices.ContainsFunc(values, func(value string) bool {
		return requirement.Matches(labels.Set{requirement.Key(): value})
	})
}
