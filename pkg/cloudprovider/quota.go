// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// allowanceOf is how much more the tenant may have within its quota. The manager is who holds the quota; here it keeps
// core from asking for what would be refused.
func (c *CloudProvider) allowanceOf(ctx context.Context, tenant *v1alpha1.TenantCluster) (instancetypes.Allowance, error) {
	quota := tenant.Spec.Quota
	if quota == nil || (quota.Servers == nil && quota.GPUs == nil) {
		return instancetypes.Allowance{}, nil
	}
	machines := &v1alpha1.MachineList{}
	if err := c.management.Client.List(ctx, machines, client.InNamespace(tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return instancetypes.Allowance{}, fmt.Errorf("counting the servers of TenantCluster %s, %w", client.ObjectKeyFromObject(tenant), err)
	}
	servers, gpus := int64(0), int64(0)
	for i := range machines.Items {
		machine := &machines.Items[i]
		reference := machine.Spec.TenantClusterRef
		if reference == nil || reference.Name != tenant.Name {
			continue
		}
		if machine.Status.HostRef == nil && !machine.DeletionTimestamp.IsZero() {
			continue // It leaves without ever having had a server.
		}
		servers++
		if chosen := machine.Status.NodeTypeRef; chosen != nil {
			if instanceType, found := c.management.Catalog.InstanceType(chosen.Name); found {
				gpus += v1alpha1.CountAccelerators(instanceType.Capacity)
			}
		}
	}
	allowance := instancetypes.Allowance{}
	if quota.Servers != nil {
		left := max(0, *quota.Servers-servers)
		allowance.Servers = &left
	}
	if quota.GPUs != nil {
		left := max(0, *quota.GPUs-gpus)
		allowance.GPUs = &left
	}
	return allowance, nil
}
