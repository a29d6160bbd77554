// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package feed keeps an inventory up to date with the BareMetalHosts that an informer sees, and says how caches hold them.
package feed

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
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

// Start attaches the inventory to the informer, tells the inventory when it has all hosts, and runs until the context
// ends.
func (f *Feed) Start(ctx context.Context) error {
	registration, stop, err := controllers.Watch(ctx, f.informers, &bmov1alpha1.BareMetalHost{}, f.handler())
	if err != nil {
		return err
	}
	defer stop()
	if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		f.inventory.MarkHostsSynced()
	}
	<-ctx.Done()
	return nil
}

func (f *Feed) handler() toolscache.ResourceEventHandler {
	return controllers.Handler(f.inventory.SetHost, func(host *bmov1alpha1.BareMetalHost) {
		f.inventory.DeleteHost(types.NamespacedName{Namespace: host.Namespace, Name: host.Name})
	})
}
