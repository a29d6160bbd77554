// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

// Follow follows clusters until ctx ends. It returns the source for a Screen, and the Screen's options except the
// token.
func Follow(ctx context.Context, management client.WithWatch, tenants []client.WithWatch, scope view.Scope, mapping topology.Mapping) (
	*view.Live, Options, error) {
	live, err := view.Follow(ctx, management, tenants, scope, clock.RealClock{})
	if err != nil {
		return nil, Options{}, err
	}
	live.FollowChecks(ctx, management)
	return live, Options{
		Topology: mapping,
		Planning: func(ctx context.Context, snapshot *view.Snapshot, tenant int) error {
			return snapshot.ReadPlanning(ctx, management, view.Readers(tenants[tenant:min(tenant+1, len(tenants))]))
		},
		History: func(ctx context.Context, name string) ([]view.Use, error) {
			return view.ReadHistory(ctx, management, name)
		},
	}, nil
}
