// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package holdback keeps pods off new servers of a type whose nodes do not take them.
//
// Core plans with what a type says, and then with what the node says. If a node has less than was planned, or a taint that nobody
// planned with, the pods that it was launched for do not fit it, and core launches the next server of the same type for them, without
// end.
//
// What CloudProvider.HoldBack returns is required of new nodes in the same way as package accelerators does it: the type has a label,
// and the pod requires that the label does not exist. No node has it, so the pods fit existing nodes as before.
package holdback

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// Pods adds the requirements to the pending pods that core lists. It must come before what changes the affinity of pods, which is part of
// their size. nodeClaimOf returns the NodeClaim that core had planned a pod for.
func Pods(servers *cloudprovider.CloudProvider, nodeClaimOf func(types.NamespacedName) string) interceptor.Interceptor {
	return interceptor.OnList(func(ctx context.Context, pods *corev1.PodList, opts []client.ListOption) error {
		if !interceptor.SelectsPending(opts) {
			return nil
		}
		labels, err := servers.HoldBack(ctx, pods.Items, nodeClaimOf)
		if err != nil {
			return err
		}
		for i := range pods.Items {
			for _, key := range labels[pods.Items[i].UID] {
				pods.Items[i].Spec.Affinity = interceptor.WithNodeRequirements(pods.Items[i].Spec.Affinity,
					corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist})
			}
		}
		return nil
	})
}
