// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package feed keeps an inventory up to date with the BareMetalHosts and the NodeTypes that caches see, and configures
// how caches hold them.
package feed

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// runnable works without leadership, so that a standby is ready at once.
type runnable func(ctx context.Context) error

// Start implements manager.Runnable.
func (r runnable) Start(ctx context.Context) error { return r(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (runnable) NeedLeaderElection() bool { return false }

// New returns a runnable that keeps an inventory up to date with the BareMetalHosts of an informer, and tells it when
// it has all of them.
func New(informers cache.Informers, hosts *inventory.Inventory) manager.Runnable {
	return runnable(func(ctx context.Context) error {
		return follow(ctx, informers, hosts.MarkHostsSynced, map[client.Object]toolscache.ResourceEventHandler{
			&bmov1alpha1.BareMetalHost{}: handlerOf(hosts),
		})
	})
}

func handlerOf(hosts *inventory.Inventory) toolscache.ResourceEventHandler {
	return kube.Handler(hosts.SetHost, func(host *bmov1alpha1.BareMetalHost) {
		hosts.DeleteHost(client.ObjectKeyFromObject(host))
	})
}

// follow attaches handlers to the informers of kinds, calls synced when all have seen the existing objects, and runs
// until the context ends.
func follow(ctx context.Context, informers cache.Informers, synced func(),
	handlers map[client.Object]toolscache.ResourceEventHandler) error {
	var haveSynced []toolscache.InformerSynced
	for kind, handler := range handlers {
		registration, stop, err := kube.Watch(ctx, informers, kind, handler)
		if err != nil {
			return err
		}
		defer stop()
		haveSynced = append(haveSynced, registration.HasSynced)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), haveSynced...) {
		synced()
	}
	<-ctx.Done()
	return nil
}
