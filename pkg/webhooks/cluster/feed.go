// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// TypeFeed keeps an inventory up to date with the NodeTypes that a cache sees. It is a Runnable for a manager, and one
// that needs no leadership.
type TypeFeed struct {
	cache     cache.Cache
	inventory *inventory.Inventory
	// mu keeps reads of the cache and writes to the inventory in order.
	mu sync.Mutex
}

// NewTypeFeed returns a feed from the cache into the inventory.
func NewTypeFeed(cache cache.Cache, inventory *inventory.Inventory) *TypeFeed {
	return &TypeFeed{cache: cache, inventory: inventory}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f *TypeFeed) NeedLeaderElection() bool { return false }

// Start watches NodeTypes and NodeProviders until the context ends, and marks the inventory once it has all types.
func (f *TypeFeed) Start(ctx context.Context) error {
	ofType := func(nodeType *v1alpha1.NodeType) { f.changed(ctx, func() error { return f.feed(ctx, nodeType.Name) }) }
	nodeTypes, stop, err := controllers.Watch(ctx, f.cache, &v1alpha1.NodeType{}, controllers.Handler(ofType, ofType))
	if err != nil {
		return err
	}
	defer stop()
	ofProvider := func(provider *v1alpha1.NodeProvider) {
		f.changed(ctx, func() error { return f.feedAll(ctx, provider.Name) })
	}
	providers, stop, err := controllers.Watch(ctx, f.cache, &v1alpha1.NodeProvider{}, controllers.Handler(ofProvider, ofProvider))
	if err != nil {
		return err
	}
	defer stop()
	if toolscache.WaitForCacheSync(ctx.Done(), nodeTypes.HasSynced, providers.HasSynced) {
		f.inventory.MarkTypesSynced()
	}
	<-ctx.Done()
	return nil
}

// changed updates the inventory after an event. The present state is read from the cache, which has the event already.
func (f *TypeFeed) changed(ctx context.Context, update func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := update(); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "reading NodeTypes from the cache")
	}
}

func (f *TypeFeed) feedAll(ctx context.Context, provider string) error {
	list := &v1alpha1.NodeTypeList{}
	if err := f.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeTypes, %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.ProviderRef.Name != provider {
			continue
		}
		if err := f.feed(ctx, list.Items[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// feed updates the inventory with one type. A type without a provider, or with an invalid selector, has no servers.
func (f *TypeFeed) feed(ctx context.Context, name string) error {
	nodeType, provider := &v1alpha1.NodeType{}, &v1alpha1.NodeProvider{}
	err := f.cache.Get(ctx, types.NamespacedName{Name: name}, nodeType)
	if err == nil {
		err = f.cache.Get(ctx, types.NamespacedName{Name: nodeType.Spec.ProviderRef.Name}, provider)
	}
	if apierrors.IsNotFound(err) {
		f.inventory.DeleteType(name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading NodeType %s and its NodeProvider, %w", name, err)
	}
	profile, err := inventory.ProfileOf(nodeType, provider)
	if err != nil {
		f.inventory.DeleteType(name)
		return nil
	}
	f.inventory.SetType(profile)
	return nil
}
