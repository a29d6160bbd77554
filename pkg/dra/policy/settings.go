// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings knows what the platform has decided for a tenant: the sync block of its TenantCluster.
package policy

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

// Settings are those of a tenant's TenantCluster. Without a TenantCluster nothing is enabled.
type Settings struct {
	// Sync is spec.sync of the TenantCluster.
	Sync v1alpha1.Sync
	// Policy is what it says of device classes. It allows nothing if SelectorError is not nil.
	Policy Policy
	// SelectorError: the selector does not parse. What is allowed is not known, so nothing may be created or deleted.
	SelectorError error
	// UID is that of the TenantCluster.
	UID types.UID
}

// Read returns a tenant's settings, from a cache or live.
func Read(ctx context.Context, reader client.Reader, key types.NamespacedName) (Settings, error) {
	cluster := &v1alpha1.TenantCluster{}
	if err := reader.Get(ctx, key, cluster); controllers.IsGone(err) {
		return Settings{}, nil
	} else if err != nil {
		return Settings{}, fmt.Errorf("reading TenantCluster %s, %w", key, err)
	}
	return Of(cluster), nil
}

// Of returns the settings of a TenantCluster.
func Of(cluster *v1alpha1.TenantCluster) Settings {
	result := Settings{Sync: cluster.Spec.Sync, UID: cluster.UID}
	result.Policy, result.SelectorError = NewPolicy(&cluster.Spec.Sync.FromHost.DeviceClasses)
	return result
}

// NotAllowed returns the first class that a claim names and the tenant may not ask for, or nothing. The reader is of the
// host.
func (s Settings) NotAllowed(ctx context.Context, reader client.Reader, spec *resourcev1.ResourceClaimSpec) (string, error) {
	for _, name := range Classes(spec) {
		class := &resourcev1.DeviceClass{}
		if err := reader.Get(ctx, client.ObjectKey{Name: name}, class); controllers.IsGone(err) {
			class = nil
		} else if err != nil {
			return "", fmt.Errorf("reading DeviceClass %s on the host, %w", name, err)
		}
		if !s.Policy.Allows(class) {
			return name, nil
		}
	}
	return "", nil
}
