// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// usage is what the tenant has.
type usage struct{ servers, gpus int64 }

// QuotaReached is a message if the tenant's quota leaves no server for a pod, or the tenant is being deleted, and empty otherwise.
func (c *CloudProvider) QuotaReached(ctx context.Context, pod *corev1.Pod) (string, error) {
	s, err := c.scopeOf(ctx, nil)
	if err != nil || s.remaining == (instancetypes.RemainingQuota{}) {
		return "", err
	}
	tenant, has, remaining := s.tenant, s.has, s.remaining
	if !tenant.DeletionTimestamp.IsZero() {
		key := client.ObjectKeyFromObject(tenant)
		return fmt.Sprintf("TenantCluster %s is being deleted and gets no more servers", key), nil
	}
	if remaining.Servers != nil && *remaining.Servers == 0 {
		return quota.ServersReached(tenant, has.servers), nil
	}
	requests, least := resources.RequestsForPods(pod), int64(0)
	for _, instanceType := range c.management.Catalog.InstanceTypes(instancetypes.NewFilter(tenant, nil)) {
		if !resources.Fits(requests, instanceType.Allocatable()) {
			continue
		}
		if remaining.Of(instanceType) > 0 {
			return "", nil
		}
		if count := v1alpha1.CountAccelerators(instanceType.Capacity); least == 0 || count < least {
			least = count
		}
	}
	if least == 0 {
		return "", nil
	}
	return quota.GPUsReached(tenant, has.gpus, fmt.Sprintf("a server for this pod has %d or more", least)), nil
}

// allowanceWithin is what the tenant has with these Machines, and how much more it may get within its quota. The manager enforces the
// quota; this keeps core from creating NodeClaims that would be refused. types are those that Machines without a server will get.
func (c *CloudProvider) allowanceWithin(ctx context.Context, tenant *v1alpha1.TenantCluster, machines []v1alpha1.Machine,
	types map[string]string) (has usage, remaining instancetypes.RemainingQuota, err error) {
	if !tenant.DeletionTimestamp.IsZero() {
		// Otherwise core would make NodeClaims for the pods of drained nodes, and for static NodePools, again and again.
		return usage{}, instancetypes.RemainingQuota{Servers: new(int64)}, nil
	}
	limits := tenant.Spec.Quota
	if limits == nil || (limits.Servers == nil && limits.GPUs == nil) {
		return usage{}, instancetypes.RemainingQuota{}, nil
	}
	tenants := &v1alpha1.TenantClusterList{}
	if err := c.management.Client.List(ctx, tenants, client.InNamespace(tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return usage{}, instancetypes.RemainingQuota{}, fmt.Errorf("counting the servers of TenantCluster %s, %w",
			client.ObjectKeyFromObject(tenant), err)
	}
	has = c.usageOf(quota.Charged(tenant.Name, lo.ToSlicePtr(tenants.Items), machines), types)
	if limits.Servers != nil {
		left := max(0, *limits.Servers-has.servers)
		remaining.Servers = &left
	}
	if limits.GPUs != nil {
		left := max(0, *limits.GPUs-has.gpus)
		remaining.GPUs = &left
	}
	return has, remaining, nil
}

// usageOf counts what a tenant has or is about to get with the Machines that are charged to it.
func (c *CloudProvider) usageOf(charged []*v1alpha1.Machine, types map[string]string) (has usage) {
	for _, machine := range charged {
		if !machine.HasHost() && (machine.Spec.TenantClusterRef == nil || !machine.DeletionTimestamp.IsZero()) {
			continue // It stands alone and may be refused, or is deleted without ever having had a server.
		}
		has.servers++
	}
	assumed := func(machine *v1alpha1.Machine) string { return types[machine.Name] }
	for _, nodeType := range quota.Used(charged, "", assumed) {
		if instanceType, found := c.management.Catalog.InstanceType(nodeType); found {
			has.gpus += v1alpha1.CountAccelerators(instanceType.Capacity)
		}
	}
	return has
}
