// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package matching

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Compose returns the entries of a nodeTypeSelector as requirements that a server of one NodeType can meet together.
// The first In entry on the type names the type of the node. Another In entry that shares no value with it asks for
// servers that match that type as well. Compose turns it into a requirement on the label of these servers. The result
// has the order and the length of the entries.
func Compose(path *field.Path, entries []corev1.NodeSelectorRequirement) ([]corev1.NodeSelectorRequirement, *field.Error) {
	composed := slices.Clone(entries)
	var named []string
	for i, entry := range entries {
		if !SelectsTypes(entry) {
			continue
		}
		common := entry.Values
		if named != nil {
			common = slices.DeleteFunc(slices.Clone(named), func(name string) bool { return !slices.Contains(entry.Values, name) })
		}
		switch {
		case len(common) > 0:
			named = common
		case len(entry.Values) > 1:
			return nil, field.Invalid(path.Index(i), strings.Join(entry.Values, ", "), fmt.Sprintf(
				"the servers are of NodeType %s by an earlier entry, and can be narrowed down to those that match one other type as well: "+
					"name one type here, or make a pool for each", strings.Join(named, " or ")))
		default:
			composed[i] = corev1.NodeSelectorRequirement{Key: v1alpha1.TypeLabelKey(entry.Values[0]), Operator: corev1.NodeSelectorOpIn,
				Values: []string{v1alpha1.TypeLabelValue}}
		}
	}
	return composed, nil
}

// SelectsTypes reports whether a requirement lists the NodeTypes that a server may be of, without a wildcard.
func SelectsTypes(requirement corev1.NodeSelectorRequirement) bool {
	return NamesTypes(requirement.Key) && requirement.Operator == corev1.NodeSelectorOpIn && len(requirement.Values) > 0 &&
		!slices.ContainsFunc(requirement.Values, func(value string) bool { return strings.Contains(value, "*") })
}
