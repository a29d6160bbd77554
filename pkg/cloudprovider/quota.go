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
	tenant, remaining, err := c.tenantCluster(ctx)
	if err != nil || remaining == (instancetypes.RemainingQuota{}) {
		return "", err
	}
	name := client.ObjectKeyFromObject(tenant)
	if !tenant.DeletionTimestamp.IsZero() {
		return fmt.Sprintf("TenantCluster %s is being deleted and gets no more servers", name), nil
	}
	has, err := c.usageOf(ctx, tenant)
	if err != nil {
		return "", err
	}
	if remaining.Servers != nil && *remaining.Servers == 0 {
		return fmt.Sprintf("TenantCluster %s has %d servers and its spec.quota.servers is %d: raise the quota, or release a server",
			name, has.servers, *tenant.Spec.Quota.Servers), nil
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
	return fmt.Sprintf("TenantCluster %s has %d GPUs, a server for this pod has %d or more, and its spec.quota.gpus is %d: raise the quota, "+
		"or release a server",
		name, has.gpus, least, *tenant.Spec.Quota.GPUs), nil
}

// allowanceWithin is how much more the tenant may get within its quota. The manager enforces the quota; this keeps core from
// creating NodeClaims that would be refused.
func (c *CloudProvider) allowanceWithin(ctx context.Context, tenant *v1alpha1.TenantCluster) (instancetypes.RemainingQuota, error) {
	if !tenant.DeletionTimestamp.IsZero() {
		// Otherwise core would make NodeClaims for the pods of drained nodes, and for static NodePools, again and again.
		return instancetypes.RemainingQuota{Servers: new(int64)}, nil
	}
	limits := tenant.Spec.Quota
	if limits == nil || (limits.Servers == nil && limits.GPUs == nil) {
		return instancetypes.RemainingQuota{}, nil
	}
	has, err := c.usageOf(ctx, tenant)
	if err != nil {
		return instancetypes.RemainingQuota{}, err
	}
	remaining := instancetypes.RemainingQuota{}
	if limits.Servers != nil {
		left := max(0, *limits.Servers-has.servers)
		remaining.Servers = &left
	}
	if limits.GPUs != nil {
		left := max(0, *limits.GPUs-has.gpus)
		remaining.GPUs = &left
	}
	return remaining, nil
}

// usageOf counts what the tenant has or is about to get.
func (c *CloudProvider) usageOf(ctx context.Context, tenant *v1alpha1.TenantCluster) (usage, error) {
	machines, tenants := &v1alpha1.MachineList{}, &v1alpha1.TenantClusterList{}
	for _, list := range []client.ObjectList{machines, tenants} {
		if err := c.management.Client.List(ctx, list, client.InNamespace(tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return usage{}, fmt.Errorf("counting the servers of TenantCluster %s, %w", client.ObjectKeyFromObject(tenant), err)
		}
	}
	charged, has := quota.Charged(tenant.Name, lo.ToSlicePtr(tenants.Items), machines.Items), usage{}
	for _, machine := range charged {
		if _, chosen := machine.Host(); !chosen && (machine.Spec.TenantClusterRef == nil || !machine.DeletionTimestamp.IsZero()) {
			continue // It stands alone and may be refused, or is deleted without ever having had a server.
		}
		has.servers++
	}
	// As the manager counts them: a server counts from the choice on.
	for _, nodeType := range quota.Used(charged, "", nil) {
		if instanceType, found := c.management.Catalog.InstanceType(nodeType); found {
			has.gpus += v1alpha1.CountAccelerators(instanceType.Capacity)
		}
	}
	return has, nil
}
