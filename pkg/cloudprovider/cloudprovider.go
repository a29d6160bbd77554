// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloudprovider implements Karpenter's CloudProvider with Machines. It creates the Machine of a NodeClaim in
// the tenant's namespace of the management cluster, and copies its status back. It reads no BareMetalHosts.
package cloudprovider

import (
	"context"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Name of this provider, as Karpenter's metrics show it.
const Name = "metal3"

// DefaultClaimTimeout is how long Create waits for the manager before it returns an error. Karpenter then retries.
const DefaultClaimTimeout = 10 * time.Second

// Options name the tenant of this provider, and configure the provider.
type Options struct {
	// Namespace of the tenant in the management cluster, where its Machines are.
	Namespace string
	// TenantCluster is the name of the tenant's TenantCluster in that namespace.
	TenantCluster string
	// ClaimTimeout is how long Create waits for the manager.
	ClaimTimeout time.Duration
	// RebootConditions are the node conditions that make core's newer repair reboot a server before it replaces it.
	RebootConditions []string
	// LegacyRepair selects core's former repair. It cannot reboot: it ignores every policy that is not a replacement.
	LegacyRepair bool
	// FaultToleration is how long a condition that reports a fault may last. The default is DefaultFaultToleration.
	FaultToleration time.Duration
	// KubernetesVersion returns the minor version that servers are installed with now, for example v1.36.
	KubernetesVersion func(context.Context) (string, error)
}

// CloudProvider implements Karpenter's interface CloudProvider.
type CloudProvider struct {
	tenant     client.Client
	live       client.Reader
	management *Management
	recorder   events.Recorder
	clock      clock.Clock
	options    Options
	refusals   *refusals
	holdbacks  holdbacks
}

var _ cloudprovider.CloudProvider = (*CloudProvider)(nil)

// New returns a CloudProvider. tenant reads the tenant cluster from a cache, and live from its API server. The provider
// sends events about NodeClaims to recorder.
func New(tenant client.Client, live client.Reader, management *Management, recorder events.Recorder, clock clock.Clock,
	options Options) *CloudProvider {
	return &CloudProvider{
		tenant: tenant, live: live, management: management, recorder: recorder, clock: clock, options: options,
		refusals: newRefusals(clock), holdbacks: holdbacks{notPlaced: map[types.UID]*notPlaced{}, sizes: map[poolType]*notPlaced{}},
	}
}

// Name returns the name of this provider.
func (c *CloudProvider) Name() string { return Name }

// GetSupportedNodeClasses returns MetalNodeClass.
func (c *CloudProvider) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.MetalNodeClass{}}
}

// tenantKey returns the key of the tenant's TenantCluster.
func (c *CloudProvider) tenantKey() types.NamespacedName {
	return c.machineKey(c.options.TenantCluster)
}
