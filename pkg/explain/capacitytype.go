// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// noCapacityType explains a pod that selects a capacity type which the servers of no NodePool have. Core repeats this
// for each instance type, without a remedy.
func (f Fleet) noCapacityType(pod *corev1.Pod) Explanation {
	selected := newSelector(pod, sets.New(karpv1.CapacityTypeLabelKey))
	if !selected.names(karpv1.CapacityTypeLabelKey) {
		return Explanation{}
	}
	unmet := func(capacityType string) []string {
		return selected.unmet(matching.Offered{karpv1.CapacityTypeLabelKey: {capacityType}})
	}
	var others []string
	for i := range f.NodePools {
		pool := &f.NodePools[i]
		if instancetypes.ServesPods(pool) != nil {
			continue
		}
		capacityType := instancetypes.CapacityTypeFor(instancetypes.OfNodePool(pool))
		if capacityType == "" {
			continue // an event on the NodePool says so
		}
		if len(unmet(capacityType)) == 0 {
			return Explanation{}
		}
		others = append(others, pool.Name+" ("+capacityType+")")
	}
	if len(others) == 0 {
		return Explanation{}
	}
	var wanted []string
	for _, requirement := range append(slices.Concat(selected.terms...), selected.required...) {
		wanted = append(wanted, requirement.Text)
	}
	for _, possible := range []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeReserved} {
		if len(unmet(possible)) == 0 {
			return Explanation{Reason: ReasonNoCapacityType, Message: conditions.Truncate(fmt.Sprintf("no NodePool has servers for "+
				"nodeSelector/affinity %s: there are %s: leave it out of the pod, or give a NodePool the requirement %s In [%s]",
				strings.Join(wanted, " and "), list(others), karpv1.CapacityTypeLabelKey, possible), conditions.MaxEventNote)}
		}
	}
	return Explanation{Reason: ReasonNoCapacityType, Message: conditions.Truncate(fmt.Sprintf("no server can ever match "+
		"nodeSelector/affinity %s: servers are %s or %s, as their NodePool says: leave it out of the pod", strings.Join(wanted, " and "),
		karpv1.CapacityTypeReserved, karpv1.CapacityTypeOnDemand), conditions.MaxEventNote)}
}
