// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
)

// QuotaReached returns a message if the quota allows no free server of any type that a NodePool could get for a pod, or
// if the tenant is being deleted. Otherwise it returns "".
func (c *CloudProvider) QuotaReached(ctx context.Context, pod *corev1.Pod) (string, error) {
	s, err := c.scopeOf(ctx, nil)
	if err != nil || s.rest.Quota == nil {
		return "", err
	}
	if message := s.leaves(); message != "" {
		return message, nil
	}
	return c.forEachInAnyQuota(ctx, pod, func(_ scope, instanceType *cloudprovider.InstanceType) (string, bool) {
		if !holds(instanceType, resources.RequestsForPods(pod)) {
			return "", false
		}
		if err := s.rest.Check(instanceType.Name); err != nil {
			return err.Error(), false
		}
		return "", true
	})
}

// leaves returns a message if the tenant is being deleted.
func (s scope) leaves() string {
	if s.tenant.DeletionTimestamp.IsZero() {
		return ""
	}
	return fmt.Sprintf("TenantCluster %s is being deleted and gets no more servers", client.ObjectKeyFromObject(s.tenant))
}

// PoolQuotaReached is QuotaReached for the servers of a static NodePool.
func (c *CloudProvider) PoolQuotaReached(ctx context.Context, nodePool *karpv1.NodePool) (string, error) {
	s, err := c.scopeOf(ctx, nodePool)
	if err != nil || s.rest.Quota == nil {
		return "", err
	}
	message, wanted := s.leaves(), scheduling.NewNodeSelectorRequirementsWithMinValues(nodePool.Spec.Template.Spec.Requirements...)
	if message != "" {
		return message, nil
	}
	for _, instanceType := range s.catalog.InstanceTypes(s.filter()) {
		if instanceType.Requirements.Intersects(wanted) != nil {
			continue
		}
		reached := s.rest.Check(instanceType.Name)
		if reached == nil {
			return "", nil
		}
		message = reached.Error()
	}
	return message, nil
}

// charged returns the Machines that count for a tenant's quota, or nil without a quota. machines are all in its
// namespace.
func (c *CloudProvider) charged(ctx context.Context, tenant *v1alpha1.TenantCluster,
	machines []v1alpha1.Machine) ([]*v1alpha1.Machine, error) {
	if tenant.Spec.Quota == nil {
		return nil, nil
	}
	tenants := &v1alpha1.TenantClusterList{}
	if err := c.management.Client.List(ctx, tenants, client.InNamespace(tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("counting the servers of TenantCluster %s, %w", client.ObjectKeyFromObject(tenant), err)
	}
	return quota.Charged(tenant.Name, lo.ToSlicePtr(tenants.Items), machines), nil
}

// restOf returns the free part of a tenant's quota: the quota without the Machines that are charged to the tenant. The
// manager enforces the quota. restOf keeps core from creating NodeClaims that the manager would refuse. assumed are the
// types that Machines without a server will get, by the name of the Machine.
func (c *CloudProvider) restOf(tenant *v1alpha1.TenantCluster, charged []*v1alpha1.Machine,
	assumed map[string]string) quota.Rest {
	used := quota.Used(charged, "", func(machine *v1alpha1.Machine) string { return assumed[machine.Name] })
	rest := quota.RestOf(tenant, used, func(nodeType string) int64 {
		if known := c.management.Catalog.NodeType(nodeType); known != nil {
			return known.Spec.CountAccelerators()
		}
		return 0
	})
	rest.Usage.Servers = 0
	for _, machine := range charged {
		if !machine.HasHost() && (machine.Spec.TenantClusterRef == nil || !machine.DeletionTimestamp.IsZero()) {
			continue // A stand-alone Machine may be refused; a deleted one without a server never had one.
		}
		rest.Usage.Servers++
	}
	if !tenant.DeletionTimestamp.IsZero() {
		// Otherwise core would make NodeClaims for the pods of drained nodes, and for static NodePools, again and again.
		rest.Quota = &v1alpha1.Quota{Servers: new(int64)}
	}
	return rest
}
