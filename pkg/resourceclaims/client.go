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
)

type viewer struct {
	client.Client
}

// ForCore returns a client for Karpenter's core that shows it the claims of pods as View does. Everything else is the
// client's. It must not be given to anybody who writes claims back; core does not.
func ForCore(c client.Client) client.Client { return &viewer{Client: c} }

// Get reads as the client does, and changes a claim if it is a copy. Core's account of allocated devices does without
// copies, and has to see claims as they are.
func (v *viewer) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := v.Client.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	claim, ok := object.(*resourcev1.ResourceClaim)
	if !ok || len(opts) > 0 || claim.Status.Allocation == nil {
		return nil
	}
	leaving, err := v.leaving(ctx, Node(claim))
	if err != nil {
		return err
	}
	View(claim, leaving)
	return nil
}

// leaving tells whether a node is about to go, or has gone.
func (v *viewer) leaving(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	node := &corev1.Node{}
	err := v.Client.Get(ctx, client.ObjectKey{Name: name}, node)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading node %s of a resource claim, %w", name, err)
	}
	return !node.DeletionTimestamp.IsZero(), nil
}
