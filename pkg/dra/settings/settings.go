// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings knows what the platform has decided for a tenant: the sync block of its TenantCluster.
package settings

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/devices"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Settings are a tenant's. Without a TenantCluster nothing is enabled.
type Settings struct {
	// Sync is the block as it is written.
	Sync v1alpha1.Sync
	// Policy is the decision on device classes. It allows nothing if Problem is not nil.
	Policy devices.Policy
	// Problem is a selector that does not parse. What is allowed is not known, and nothing may be made or taken away.
	Problem error
	// UID is that of the TenantCluster.
	UID types.UID
}

// Read returns a tenant's settings, from a cache or live.
func Read(ctx context.Context, reader client.Reader, key types.NamespacedName) (Settings, error) {
	cluster := &v1alpha1.TenantCluster{}
	if err := reader.Get(ctx, key, cluster); tenant.IsGone(err) {
		return Settings{}, nil
	} else if err != nil {
		return Settings{}, fmt.Errorf("reading TenantCluster %s, %w", key, err)
	}
	return Of(cluster), nil
}

// Of returns the settings of a TenantCluster.
func Of(cluster *v1alpha1.TenantCluster) Settings {
	result := Settings{Sync: cluster.Spec.Sync, UID: cluster.UID}
	result.Policy, result.Problem = devices.NewPolicy(&cluster.Spec.Sync.FromHost.DeviceClasses)
	return result
}
