// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inprocess has a tenant's CloudProvider in the process of a test: the half of a provider that talks to the management cluster. It
// is a package apart, because the tests of the manager use test/management, and the manager cannot see a tenant cluster.
package inprocess

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecluster "sigs.k8s.io/controller-runtime/pkg/cluster"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Start returns the CloudProvider of a tenant once its caches are filled. It reads MetalNodeClasses with the tenant's client. The labels of
// servers must be registered before (instancetypes.Register). The caller stops it.
func Start(
	ctx context.Context, fleet *env.Environment, inTenant client.Client, options cloudprovider.Options,
) (provider *cloudprovider.CloudProvider, stop func() error, err error) {
	plane, err := runtimecluster.New(fleet.Config, func(o *runtimecluster.Options) {
		o.Scheme = fleet.Scheme
		o.Cache.DefaultNamespaces = map[string]cache.Config{options.Namespace: {}}
		o.Cache.DefaultTransform = operator.TrimObject
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reaching the management cluster for tenant %s, %w", options.Namespace, err)
	}
	running, cancel := context.WithCancel(context.Background())
	seen, err := cloudprovider.NewManagement(running, plane.GetCache(), plane.GetClient(), plane.GetAPIReader(),
		instancetypes.NewCatalog(instancetypes.DefaultPods))
	if err != nil {
		cancel()
		return nil, nil, err
	}
	stopped := make(chan error, 1)
	go func() { stopped <- plane.Start(running) }()
	stop = func() error {
		cancel()
		return <-stopped
	}
	provider = cloudprovider.New(inTenant, inTenant, seen, events.NewRecorder(&record.FakeRecorder{}), clock.RealClock{}, options)
	return provider, stop, poll.Await(ctx, "the cache of tenant "+options.Namespace+" is filled",
		func(context.Context) error { return seen.Synced() })
}

// NodeClaim is what core asks for: a server with eight GPUs, of whatever type.
func NodeClaim(name string) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.Now()},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default"},
			Resources:    karpv1.ResourceRequirements{Requests: env.Resources("nvidia.com/gpu", "8")},
		},
	}
}
