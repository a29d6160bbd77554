// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/plan"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// objects reads the objects that Machines refer to. Listed objects are shared with the cache: do not change them.
type objects struct{ cache client.Reader }

var _ plan.Cluster = objects{}

// Find implements plan.Cluster. Do not change the object: a copy would include the counts of all domains.
func (o objects) Find(ctx context.Context, name string, object plan.Object) (bool, error) {
	return kube.Find(ctx, o.cache, types.NamespacedName{Name: name}, object, client.UnsafeDisableDeepCopy)
}

// ChargedTo implements plan.Cluster.
func (o objects) ChargedTo(ctx context.Context, machine *v1alpha1.Machine) (*v1alpha1.TenantCluster, error) {
	tenants, err := o.tenants(ctx, machine.Namespace)
	return quota.ChargedTo(machine, tenants), err
}

// Types implements plan.Cluster.
func (o objects) Types(ctx context.Context) ([]*v1alpha1.NodeType, []*v1alpha1.NodeProvider, error) {
	nodeTypes, providers := &v1alpha1.NodeTypeList{}, &v1alpha1.NodeProviderList{}
	for _, list := range []client.ObjectList{nodeTypes, providers} {
		if err := o.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, nil, fmt.Errorf("listing NodeTypes and NodeProviders, %w", err)
		}
	}
	return lo.ToSlicePtr(nodeTypes.Items), lo.ToSlicePtr(providers.Items), nil
}

// tenants returns the TenantClusters of a namespace.
func (o objects) tenants(ctx context.Context, namespace string) ([]*v1alpha1.TenantCluster, error) {
	list := &v1alpha1.TenantClusterList{}
	if err := o.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the TenantClusters of namespace %s, %w", namespace, err)
	}
	return lo.ToSlicePtr(list.Items), nil
}
