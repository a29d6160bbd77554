// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// holding is what the tenant has.
type holding struct{ servers, gpus int64 }

// QuotaReached says that the tenant's quota leaves no server for a pod, and is empty if it leaves one, or if there is no
// quota.
func (c *CloudProvider) QuotaReached(ctx context.Context, pod *corev1.Pod) (string, error) {
	tenant, allowance, err := c.tenantCluster(ctx)
	if err != nil || allowance == (instancetypes.Allowance{}) {
		return "", err
	}
	has, err := c.holdingOf(ctx, tenant)
	if err != nil {
		return "", err
	}
	name := client.ObjectKeyFromObject(tenant)
	if allowance.Servers != nil && *allowance.Servers == 0 {
		return fmt.Sprintf("TenantCluster %s has %d servers and its spec.quota.servers is %d: raise the quota, or give a server back",
			name, has.servers, *tenant.Spec.Quota.Servers), nil
	}
	requests, least := resources.RequestsForPods(pod), int64(0)
	for _, instanceType := range c.management.Catalog.InstanceTypes(instancetypes.NewFilter(tenant, nil)) {
		if !resources.Fits(requests, instanceType.Allocatable()) {
			continue
		}
		if allowance.Of(instanceType) > 0 {
			return "", nil
		}
		if count := v1alpha1.CountAccelerators(instanceType.Capacity); least == 0 || count < least {
			least = count
		}
	}
	if least == 0 {
		return "", nil
	}
	return fmt.Sprintf("TenantCluster %s has %d GPUs, a server for this pod has %d or more, and its spec.quota.gpus is %d: raise the quota, or give a server back",
		name, has.gpus, least, *tenant.Spec.Quota.GPUs), nil
}

// allowanceOf is how much more the tenant may have within its quota. The manager is who holds the quota; here it keeps
// core from asking for what would be refused.
func (c *CloudProvider) allowanceOf(ctx context.Context, tenant *v1alpha1.TenantCluster) (instancetypes.Allowance, error) {
	quota := tenant.Spec.Quota
	if quota == nil || (quota.Servers == nil && quota.GPUs == nil) {
		return instancetypes.Allowance{}, nil
	}
	has, err := c.holdingOf(ctx, tenant)
	if err != nil {
		return instancetypes.Allowance{}, err
	}
	allowance := instancetypes.Allowance{}
	if quota.Servers != nil {
		left := max(0, *quota.Servers-has.servers)
		allowance.Servers = &left
	}
	if quota.GPUs != nil {
		left := max(0, *quota.GPUs-has.gpus)
		allowance.GPUs = &left
	}
	return allowance, nil
}

// holdingOf counts what the tenant has, or is about to get.
func (c *CloudProvider) holdingOf(ctx context.Context, tenant *v1alpha1.TenantCluster) (holding, error) {
	machines := &v1alpha1.MachineList{}
	if err := c.management.Client.List(ctx, machines, client.InNamespace(tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return holding{}, fmt.Errorf("counting the servers of TenantCluster %s, %w", client.ObjectKeyFromObject(tenant), err)
	}
	has := holding{}
	for i := range machines.Items {
		machine := &machines.Items[i]
		reference := machine.Spec.TenantClusterRef
		if reference == nil || reference.Name != tenant.Name {
			continue
		}
		if machine.Status.HostRef == nil && !machine.DeletionTimestamp.IsZero() {
			continue // It leaves without ever having had a server.
		}
		has.servers++
		if chosen := machine.Status.NodeTypeRef; chosen != nil {
			if instanceType, found := c.management.Catalog.InstanceType(chosen.Name); found {
				has.gpus += v1alpha1.CountAccelerators(instanceType.Capacity)
			}
		}
	}
	return has, nil
}
