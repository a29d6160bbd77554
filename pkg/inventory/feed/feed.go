// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package feed keeps an inventory up to date with the BareMetalHosts that an informer sees.
package feed

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Feed keeps an inventory up to date with the BareMetalHosts that an informer sees. It is a Runnable for a manager, and
// one that needs no leadership, so that a standby is ready at once.
type Feed struct {
	informers cache.Informers
	inventory *inventory.Inventory
}

// New returns a feed from the informers into the inventory.
func New(informers cache.Informers, hosts *inventory.Inventory) *Feed {
	return &Feed{informers: informers, inventory: hosts}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f *Feed) NeedLeaderElection() bool { return false }

// Start attaches the inventory to the informer, tells the inventory when it has all hosts, and goes on until the
// context ends.
func (f *Feed) Start(ctx context.Context) error {
	informer, err := f.informers.GetInformer(ctx, &bmov1alpha1.BareMetalHost{})
	if err != nil {
		return fmt.Errorf("watching BareMetalHosts, %w", err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    f.set,
		UpdateFunc: func(_, object any) { f.set(object) },
		DeleteFunc: f.remove,
	})
	if err != nil {
		return fmt.Errorf("watching BareMetalHosts, %w", err)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		f.inventory.MarkHostsSynced()
	}
	<-ctx.Done()
	// The error is that the informer has stopped already, which is what is wanted.
	_ = informer.RemoveEventHandler(registration)
	return nil
}

func (f *Feed) set(object any) {
	if host, ok := object.(*bmov1alpha1.BareMetalHost); ok {
		f.inventory.SetHost(host)
	}
}

// remove is given a tombstone when the watch has missed the deletion itself.
func (f *Feed) remove(object any) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
		if object == nil {
			namespace, name, err := toolscache.SplitMetaNamespaceKey(tombstone.Key)
			if err == nil {
				f.inventory.DeleteHost(types.NamespacedName{Namespace: namespace, Name: name})
			}
			return
		}
	}
	if host, ok := object.(*bmov1alpha1.BareMetalHost); ok {
		f.inventory.DeleteHost(types.NamespacedName{Namespace: host.Namespace, Name: host.Name})
	}
}
