// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
)

// ReasonRemoved is the reason of the event on a class that leaves the tenant.
const ReasonRemoved = "DeviceClassRemoved"

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return "dra.deviceclasses" }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	each := &handler.TypedEnqueueRequestForObject[*resourcev1.DeviceClass]{}
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.clusters.Management.Cache, &resourcev1.DeviceClass{}, each)).
		WatchesRawSource(source.Kind(c.clusters.Tenant.Cache, &resourcev1.DeviceClass{}, each)).
		WatchesRawSource(policy.Changes(c.clusters, c.all)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, CacheSyncTimeout: controllers.CacheSyncTimeout}).
		Complete(c)
}

// all are the classes of both clusters.
func (c *Controller) all(ctx context.Context) []reconcile.Request {
	return append(controllers.Requests(ctx, c.clusters.Management.Client, &resourcev1.DeviceClassList{}),
		controllers.Requests(ctx, c.clusters.Tenant.Client, &resourcev1.DeviceClassList{})...)
}

func removed(class *resourcev1.DeviceClass, onHost bool, policy string) events.Event {
	why := "the host has no such DeviceClass"
	if onHost {
		why = policy + ", and this one is not"
	}
	return events.Event{
		InvolvedObject: class, Type: corev1.EventTypeWarning, Reason: ReasonRemoved,
		Message:      fmt.Sprintf("DeviceClass %s has been removed: %s. Claims that use it stay, and are no longer in sync", class.Name, why),
		DedupeValues: []string{string(class.UID)},
	}
}
