// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceclaims changes what Karpenter's core reads of Dynamic Resource Allocation: allocated resource claims, so that core
// schedules pods which share one, and pods that ask for devices by an extended resource, so that core plans them with the claim
// that kube-scheduler will make (extended.go).
//
// Core v1.15.0 has two bugs with them. It looks only at labels for where the devices of a claim are, while the scheduler
// names the node by a field: a pod that shares a claim with a running one would get a new server, which it cannot use. And
// when several pods that share a claim leave a node together, core allocates devices to that claim twice, and panics; until
// they have gone, no pod of the tenant gets a server.
package resourceclaims

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
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

// View changes an allocated claim to what core must read. deleting returns whether its node is being deleted.
func View(claim *resourcev1.ResourceClaim, deleting bool) {
	if len(claim.Status.ReservedFor) > 1 {
		if deleting {
			// As if it were not allocated: the first of its pods that core schedules allocates it again, and the others
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

// Claims changes the allocated claims that core gets, as View does. nodes reads the nodes that they are on.
func Claims(nodes client.Reader) interceptor.Interceptor {
	return interceptor.OnGet(func(ctx context.Context, claim *resourcev1.ResourceClaim, opts []client.GetOption) error {
		// Core tracks the allocated devices on claims that it reads without a copy, by options. It needs those as they are.
		if len(opts) > 0 || claim.Status.Allocation == nil {
			return nil
		}
		deleting, err := isDeleting(ctx, nodes, Node(claim))
		if err != nil {
			return err
		}
		View(claim, deleting)
		return nil
	})
}

// isDeleting returns whether a node is being deleted or does not exist. It is false without a name.
func isDeleting(ctx context.Context, nodes client.Reader, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	node := &corev1.Node{}
	found, err := kube.Find(ctx, nodes, client.ObjectKey{Name: name}, node)
	return err == nil && (!found || !node.DeletionTimestamp.IsZero()), err
}
