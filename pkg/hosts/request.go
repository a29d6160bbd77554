// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Request asks for one host, either of a named type, or of the cheapest type that meets requirements and resources.
type Request struct {
	// Machine that the host is for. If empty, the answer is what a Machine would get now, and nothing is assumed.
	Machine types.UID
	// NodeType by name. If set, neither the resources nor the rule about accelerators apply: whoever names a type wants it.
	NodeType string
	// Requirements that the labels of the node would have to meet.
	Requirements []corev1.NodeSelectorRequirement
	// Resources that the node must have for pods.
	Resources corev1.ResourceList
	// Drivers are the DRA drivers whose devices are asked for.
	Drivers []string
	// Allowed tells whether the tenant may have a type of a provider. Nil allows all. It is called with the inventory
	// locked and must not call back.
	Allowed func(typeName, provider string) bool
	// ServerName pins the request to the host of that name, in the namespace of the type's provider. No other is given.
	ServerName string
}

// requirements are parsed requirements.
type requirements struct {
	// ofType are about labels that all hosts of a type share, ofHost about those that differ from host to host.
	ofType, ofHost []labels.Requirement
}

var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

func (i *Inventory) parse(from []corev1.NodeSelectorRequirement) (requirements, error) {
	parsed := requirements{}
	for n, requirement := range from {
		operator, known := operators[requirement.Operator]
		if !known {
			return requirements{}, &NoHostError{
				Reason: v1alpha1.ReasonInvalidSpec,
				Detail: fmt.Sprintf("requirements[%d] (%s): operator %q is none of In, NotIn, Exists, DoesNotExist, Gt, Lt: correct it",
					n, requirement.Key, requirement.Operator),
			}
		}
		one, err := labels.NewRequirement(requirement.Key, operator, requirement.Values)
		if err != nil {
			return requirements{}, &NoHostError{
				Reason: v1alpha1.ReasonInvalidSpec,
				Detail: fmt.Sprintf("requirements[%d] (%s %s [%s]) is not valid: %v: correct it",
					n, requirement.Key, requirement.Operator, strings.Join(requirement.Values, ", "), err),
			}
		}
		if i.differs(one.Key()) {
			parsed.ofHost = append(parsed.ofHost, *one)
		} else {
			parsed.ofType = append(parsed.ofType, *one)
		}
	}
	return parsed, nil
}

// describeOfHost is the same for requirements that the same hosts meet, in whatever order they are.
func (r requirements) describeOfHost() string {
	texts := make([]string, 0, len(r.ofHost))
	for n := range r.ofHost {
		texts = append(texts, r.ofHost[n].String())
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

// differs tells whether a label differs from host to host of one type.
func (i *Inventory) differs(key string) bool {
	return key == corev1.LabelTopologyZone || key == corev1.LabelArchStable || slices.Contains(i.topology, key)
}

// unmet returns the first requirement that the labels do not meet, or nil.
func unmet(requirements []labels.Requirement, set labels.Labels) *labels.Requirement {
	for n := range requirements {
		if !requirements[n].Matches(set) {
			return &requirements[n]
		}
	}
	return nil
}
