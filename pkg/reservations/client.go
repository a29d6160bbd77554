// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reservations knows that reservation IDs are for planning only, and keeps them out of NodeClaims.
//
// Karpenter's core writes into each NodeClaim all reservations that it might have drawn from: one for each type and
// domain that would do, which are thousands in a big fleet, and a hundred kilobytes in each NodeClaim. Nobody reads them
// there: which server it is, is the manager's to decide, by the requirements that pods and NodePools have.
package reservations

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// keeper is a client that creates NodeClaims without reservation IDs.
type keeper struct {
	client.Client
}

// KeepOut returns a client for Karpenter's core that creates NodeClaims without reservation IDs. Everything else is the
// client's.
func KeepOut(c client.Client) client.Client { return &keeper{Client: c} }

// Create creates as the client does. It takes the requirement out of a NodeClaim that it is given.
func (k *keeper) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if nodeClaim, ok := object.(*karpenterv1.NodeClaim); ok {
		nodeClaim.Spec.Requirements = slices.DeleteFunc(nodeClaim.Spec.Requirements, func(requirement karpenterv1.NodeSelectorRequirementWithMinValues) bool {
			return requirement.Key == v1alpha1.ReservationIDLabelKey
		})
	}
	return k.Client.Create(ctx, object, opts...)
}
