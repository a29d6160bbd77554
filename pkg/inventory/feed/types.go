// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// AddType adds a NodeType to an inventory, with its NodeProvider and the TenantClusters in the namespace of its
// servers, as the reader has them. It returns why the type has no servers, nil if it is valid.
func AddType(ctx context.Context, reader client.Reader, inventory *inventory.Inventory,
	nodeType *v1alpha1.NodeType) (*inventory.InvalidType, error) {
	provider := &v1alpha1.NodeProvider{}
	found, err := kube.Find(ctx, reader, client.ObjectKey{Name: nodeType.Spec.ProviderRef.Name}, provider)
	if err != nil {
		return nil, err
	}
	if !found {
		return inventory.AddType(nodeType, nil, ""), nil
	}
	namespace, tenants := provider.Spec.Metal3.ClusterRef.Namespace, &v1alpha1.TenantClusterList{}
	if err := reader.List(ctx, tenants, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing TenantClusters of namespace %s, %w", namespace, err)
	}
	tenant := ""
	if len(tenants.Items) > 0 {
		tenant = tenants.Items[0].Name
	}
	return inventory.AddType(nodeType, provider, tenant), nil
}

// types keeps an inventory up to date with the NodeTypes that a cache sees.
type types struct {
	cache     cache.Cache
	inventory *inventory.Inventory
	// mu keeps reads of the cache and writes to the inventory in order.
	mu sync.Mutex
}

// NewTypes returns a runnable that keeps an inventory up to date with the NodeTypes of a cache, and with the
// NodeProviders and TenantClusters that matter to them. It tells the inventory when it has all of them.
func NewTypes(cache cache.Cache, inventory *inventory.Inventory) manager.Runnable {
	t := &types{cache: cache, inventory: inventory}
	return runnable(func(ctx context.Context) error {
		nodeType := func(nodeType *v1alpha1.NodeType) { t.changed(ctx, func() error { return t.add(ctx, nodeType.Name) }) }
		provider := func(provider *v1alpha1.NodeProvider) {
			t.changed(ctx, func() error { return t.addAll(ctx, sets.New(provider.Name)) })
		}
		tenant := func(tenant *v1alpha1.TenantCluster) {
			t.changed(ctx, func() error { return t.addOfNamespace(ctx, tenant.Namespace) })
		}
		return follow(ctx, cache, inventory.MarkTypesSynced, map[client.Object]toolscache.ResourceEventHandler{
			&v1alpha1.NodeType{}:      kube.Handler(nodeType, nodeType),
			&v1alpha1.NodeProvider{}:  kube.Handler(provider, provider),
			&v1alpha1.TenantCluster{}: kube.Handler(tenant, tenant),
		})
	})
}

// changed updates the inventory after an event. update reads the present state from the cache.
func (t *types) changed(ctx context.Context, update func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := update(); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "reading NodeTypes from the cache")
	}
}

// addOfNamespace updates the types whose servers are in a namespace.
func (t *types) addOfNamespace(ctx context.Context, namespace string) error {
	providers, names := &v1alpha1.NodeProviderList{}, sets.New[string]()
	if err := t.cache.List(ctx, providers, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeProviders, %w", err)
	}
	for i := range providers.Items {
		if providers.Items[i].Spec.Metal3.ClusterRef.Namespace == namespace {
			names.Insert(providers.Items[i].Name)
		}
	}
	return t.addAll(ctx, names)
}

// addAll updates the types of providers.
func (t *types) addAll(ctx context.Context, providers sets.Set[string]) error {
	nodeTypes := &v1alpha1.NodeTypeList{}
	if err := t.cache.List(ctx, nodeTypes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeTypes, %w", err)
	}
	for i := range nodeTypes.Items {
		if providers.Has(nodeTypes.Items[i].Spec.ProviderRef.Name) {
			if err := t.add(ctx, nodeTypes.Items[i].Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// add updates one type, or removes it if it does not exist.
func (t *types) add(ctx context.Context, name string) error {
	nodeType := &v1alpha1.NodeType{}
	found, err := kube.Find(ctx, t.cache, client.ObjectKey{Name: name}, nodeType)
	if err != nil {
		return err
	}
	if !found {
		t.inventory.DeleteType(name)
		return nil
	}
	_, err = AddType(ctx, t.cache, t.inventory, nodeType)
	return err
}
