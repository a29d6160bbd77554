// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package poolcheck

import (
	"fmt"
	"strings"

	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// Reasons of the events on NodePools.
const (
	// ReasonNoCapacityType: the pool allows no capacity type that this provider has.
	ReasonNoCapacityType = "NoCapacityType"
	// ReasonNoServerMatches: no server that the tenant may have could ever meet a requirement of the pool.
	ReasonNoServerMatches = "NoServerMatches"
)

// problem is what somebody has to mend in a NodePool.
type problem struct{ reason, message string }

// check returns what keeps a pool from ever having a node. Meets tells whether some server could meet a requirement.
func check(nodePool *karpenterv1.NodePool, capacityType string, meets func(*scheduling.Requirement) bool) []problem {
	var problems []problem
	for _, one := range nodePool.Spec.Template.Spec.Requirements {
		requirement := scheduling.NewNodeSelectorRequirementsWithMinValues(one).Get(keyOf(one))
		text := strings.TrimSpace(fmt.Sprintf("%s %s %s", one.Key, one.Operator, list(one.Values)))
		switch {
		case one.Key == karpenterv1.CapacityTypeLabelKey:
			if !requirement.Has(capacityType) {
				problems = append(problems, problem{ReasonNoCapacityType, fmt.Sprintf(
					"requirement %s leaves out %s, the only capacity type that servers have here: allow it, or run the provider with another --capacity-type", text, capacityType)})
			}
		case karpenterv1.WellKnownLabels.Has(requirement.Key) && !meets(requirement):
			problems = append(problems, problem{ReasonNoServerMatches, fmt.Sprintf(
				"requirement %s is met by no server that this tenant may have: correct it, or label the BareMetalHosts", text)})
		}
	}
	return problems
}

// keyOf is the present-day name of a label: Kubernetes has renamed some.
func keyOf(requirement karpenterv1.NodeSelectorRequirementWithMinValues) string {
	if normalized, found := karpenterv1.NormalizedLabels[requirement.Key]; found {
		return normalized
	}
	return requirement.Key
}

func list(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return "[" + strings.Join(values, ", ") + "]"
}
