// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node returns the name of the node that the devices of an allocated claim are on, empty if they are on none or on several.
func Node(claim *resourcev1.ResourceClaim) string {
	allocation := claim.Status.Allocation
	if allocation == nil || allocation.NodeSelector == nil || len(allocation.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, field := range allocation.NodeSelector.NodeSelectorTerms[0].MatchFields {
		if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
			return field.Values[0]
		}
	}
	return ""
}

// View changes an allocated claim to what core must read. deleting tells whether its node is being deleted.
func View(claim *resourcev1.ResourceClaim, deleting bool) {
	if len(claim.Status.ReservedFor) > 1 {
		if deleting {
			// As if it were not allocated: the first of its pods that core schedules allocates it anew, and the others
			// follow that pod.
			claim.Status.Allocation, claim.Status.ReservedFor = nil, nil
			return
		}
		// Core does not release a claim that a consumer other than a pod has reserved. In a simulation of disruption it then
		// finds that the pods cannot leave the node, and does not disrupt it.
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			APIGroup: resourcev1.GroupName, Resource: "resourceclaims", Name: claim.Name, UID: claim.UID,
		})
	}
	// New servers have no name yet, so none of them meets this.
	if node := Node(claim); node != "" {
		term := &claim.Status.Allocation.NodeSelector.NodeSelectorTerms[0]
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		})
	}
}
