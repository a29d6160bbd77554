// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/nodeprofiles"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// Resolve returns the NodeProfile that a pool or Machine names, or the default, or none, or why it cannot be had.
type Resolve func(explicit string) (profile nodeprofiles.Profile, problem string, err error)

// NodeProfiles returns the Resolve function for the tenant's nodes. It reads from the cache.
func (c Clusters) NodeProfiles(ctx context.Context) (Resolve, error) {
	cluster := &v1alpha1.TenantCluster{}
	found, err := kube.Find(ctx, c.Management.Client, c.TenantCluster, cluster)
	if err != nil {
		return nil, err
	}
	return func(explicit string) (nodeprofiles.Profile, string, error) {
		if !found {
			return nodeprofiles.Profile{}, fmt.Sprintf("there is no TenantCluster %s", c.TenantCluster), nil
		}
		return nodeprofiles.Resolve(cluster, explicit, c.FindNodeProfile(ctx))
	}, nil
}

// FindNodeProfile returns a function that reads NodeProfiles from the cache.
func (c Clusters) FindNodeProfile(ctx context.Context) nodeprofiles.Find {
	return func(name string) (*v1alpha1.NodeProfile, error) {
		profile := &v1alpha1.NodeProfile{}
		found, err := kube.Find(ctx, c.Management.Client, client.ObjectKey{Name: name}, profile)
		if err != nil || !found {
			return nil, err
		}
		return profile, nil
	}
}
