// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/compat"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// selectorEntries converts the nodeTypeSelector of a pool of that provider.
func selectorEntries(selector []v1alpha1.NodeTypeSelectorRequirement, provider string, catalog Catalog) (
	[]corev1.NodeSelectorRequirement, *field.Error,
) {
	path := field.NewPath("nodeTypeSelector")
	var entries []corev1.NodeSelectorRequirement
	for i, entry := range selector {
		requirement, err := matching.NodeTypeSelector(path.Index(i), entry)
		if err != nil {
			return nil, err
		}
		if matching.NamesTypes(requirement.Key) {
			requirement.Values = compat.TypeNames(requirement.Values, provider, catalog.Exists)
		}
		entries = append(entries, requirement)
	}
	return matching.Compose(path, entries)
}

// capacityTypeOf returns a pool's requirement on the capacity type: reserved, or none for on-demand only.
func capacityTypeOf(entries []corev1.NodeSelectorRequirement) ([]karpv1.NodeSelectorRequirementWithMinValues, string) {
	about := lo.Filter(entries, func(requirement corev1.NodeSelectorRequirement, _ int) bool {
		return requirement.Key == karpv1.CapacityTypeLabelKey
	})
	switch instancetypes.CapacityTypeFor(scheduling.NewNodeSelectorRequirements(about...)) {
	case karpv1.CapacityTypeReserved:
		return []karpv1.NodeSelectorRequirementWithMinValues{{
			Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeReserved},
		}}, ""
	case "":
		return nil, fmt.Sprintf("nodeTypeSelector: %s allows neither %s nor %s, and servers are nothing else: write one of the two, or leave "+
			"it out", karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeReserved, karpv1.CapacityTypeOnDemand)
	}
	return nil, ""
}
