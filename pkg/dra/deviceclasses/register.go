// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceclasses

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
)

// ReasonRemoved is the reason of the event on a class that leaves the tenant.
const ReasonRemoved = "DeviceClassRemoved"

// cacheSyncTimeout is how long the first answer of an API may take. The process must not end because of it: it has other
// things to do than this.
const cacheSyncTimeout = 24 * time.Hour

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return "dra.deviceclasses" }

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(_ context.Context, m manager.Manager) error {
	each := &handler.TypedEnqueueRequestForObject[*resourcev1.DeviceClass]{}
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.planes.Management.Cache, &resourcev1.DeviceClass{}, each)).
		WatchesRawSource(source.Kind(c.planes.Tenant.Cache, &resourcev1.DeviceClass{}, each)).
		WatchesRawSource(settings.Changes(c.planes, c.all)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, CacheSyncTimeout: cacheSyncTimeout}).
		Complete(c)
}

// all asks for every class of both clusters.
func (c *Controller) all(ctx context.Context) []reconcile.Request {
	var requests []reconcile.Request
	for _, reader := range []client.Reader{c.planes.Management.Client, c.planes.Tenant.Client} {
		classes := &resourcev1.DeviceClassList{}
		if err := reader.List(ctx, classes, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "listing DeviceClasses")
			continue
		}
		for i := range classes.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: classes.Items[i].Name}})
		}
	}
	return requests
}

func removed(class *resourcev1.DeviceClass, onHost bool, policy string) events.Event {
	why := "the host has no such DeviceClass"
	if onHost {
		why = policy + ", and this one is not"
	}
	return events.Event{
		InvolvedObject: class, Type: corev1.EventTypeWarning, Reason: ReasonRemoved,
		Message:      fmt.Sprintf("DeviceClass %s has been removed: %s. Claims that use it stay, and are not in sync any more", class.Name, why),
		DedupeValues: []string{string(class.UID)},
	}
}
