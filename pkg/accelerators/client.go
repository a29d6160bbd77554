// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keeper is a client whose lists of pods say which of them must not get a server with accelerators.
type keeper struct {
	client.Client
}

// KeepPodsOff returns a client for Karpenter's core: what it lists as pods that ask for no accelerator requires, in
// memory only, a type without, and so does what it gets as the templates of such pods. Everything else is the client's. It
// must not be given to anybody who writes pods or their templates back.
func KeepPodsOff(c client.Client) client.Client { return &keeper{Client: c} }

// List lists as the client does, and adds the requirement to pods.
func (k *keeper) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := k.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return nil
	}
	for i := range pods.Items {
		// The items are the list's own, but what they point to may be the cache's.
		if pod := &pods.Items[i]; !MayNeed(pod) {
			pod.Spec.Affinity = keepOff(pod.Spec.Affinity)
		}
	}
	return nil
}
