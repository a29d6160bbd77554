// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

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

// isDeleting tells whether a node is being deleted or does not exist. It is false without a name.
func isDeleting(ctx context.Context, nodes client.Reader, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	node := &corev1.Node{}
	err := nodes.Get(ctx, client.ObjectKey{Name: name}, node)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading node %s of a resource claim, %w", name, err)
	}
	return !node.DeletionTimestamp.IsZero(), nil
}
