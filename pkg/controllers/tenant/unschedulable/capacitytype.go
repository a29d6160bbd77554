// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package unschedulable

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// noCapacityType explains a pod that selects a capacity type which the servers of no NodePool have. Core says the same of each
// instance type, and not what to do.
func (c *PodController) noCapacityType(ctx context.Context, pod *corev1.Pod) (Explanation, error) {
	selected := newSelector(pod, sets.New(karpenterv1.CapacityTypeLabelKey))
	if !selected.names(karpenterv1.CapacityTypeLabelKey) {
		return Explanation{}, nil
	}
	nodePools := &karpenterv1.NodePoolList{}
	if err := c.clusters.Tenant.Client.List(ctx, nodePools, client.UnsafeDisableDeepCopy); err != nil {
		return Explanation{}, fmt.Errorf("listing NodePools, %w", err)
	}
	return explainCapacityType(selected, nodePools.Items, c.settings), nil
}

func explainCapacityType(selected selector, nodePools []karpenterv1.NodePool, settings instancetypes.Settings) Explanation {
	unmet := func(capacityType string) []string {
		return selected.unmet(matching.Offered{karpenterv1.CapacityTypeLabelKey: {capacityType}})
	}
	var others []string
	for i := range nodePools {
		pool := &nodePools[i]
		reference := pool.Spec.Template.Spec.NodeClassRef
		if reference == nil || reference.Group != v1alpha1.Group || pool.Spec.Replicas != nil || !pool.DeletionTimestamp.IsZero() {
			continue // new pods get no node of it
		}
		capacityType := settings.CapacityTypeFor(instancetypes.OfNodePool(pool))
		if capacityType == "" {
			continue // which an event on the NodePool says
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
	for _, one := range append(slices.Concat(selected.terms...), selected.required...) {
		wanted = append(wanted, one.text)
	}
	for _, possible := range []string{karpenterv1.CapacityTypeOnDemand, karpenterv1.CapacityTypeReserved} {
		if len(unmet(possible)) == 0 {
			return Explanation{Reason: ReasonNoCapacityType, Message: conditions.Truncate(fmt.Sprintf("no NodePool has servers for "+
				"nodeSelector/affinity %s: there are %s: leave it out of the pod, or give a NodePool the requirement %s In [%s]",
				strings.Join(wanted, " and "), list(others), karpenterv1.CapacityTypeLabelKey, possible), conditions.MaxEventNote)}
		}
	}
	return Explanation{Reason: ReasonNoCapacityType, Message: conditions.Truncate(fmt.Sprintf("no server can ever match "+
		"nodeSelector/affinity %s: servers are %s or %s, as their NodePool says: leave it out of the pod", strings.Join(wanted, " and "),
		karpenterv1.CapacityTypeReserved, karpenterv1.CapacityTypeOnDemand), conditions.MaxEventNote)}
}
