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

// View changes an allocated claim into what core has to see. leaving tells whether its node is about to go.
func View(claim *resourcev1.ResourceClaim, leaving bool) {
	if len(claim.Status.ReservedFor) > 1 {
		if leaving {
			// As if nobody had it yet: the first of its pods that core plans for gets it new devices, and the others
			// go where that one goes.
			claim.Status.Allocation, claim.Status.ReservedFor = nil, nil
			return
		}
		// Core takes a claim for committed if somebody other than a pod has it too. If core only tries out what would
		// become of the pods, it finds that they cannot leave the node, and leaves it alone.
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
