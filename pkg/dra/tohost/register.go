// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tohost

import (
	"context"
	"fmt"
	"maps"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claimstatus"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/devices"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/settings"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/vcluster"
)

// Fields by which the caches index claims and templates.
const (
	// fieldClasses, of the tenant's: the device classes that they name.
	fieldClasses = "dra/deviceClasses"
	// fieldHostName, of the tenant's: the name on the host.
	fieldHostName = "dra/hostName"
	// fieldReservedFor, of the host's claims: the pods that use them.
	fieldReservedFor = "dra/reservedFor"
)

const (
	concurrentReconciles = 10
	// cacheSyncTimeout is how long the first answer of an API may take. The process must not end because of it: it has
	// other things to do than this.
	cacheSyncTimeout = 24 * time.Hour
)

// Name implements Karpenter's controller interface.
func (c *Controller[T]) Name() string { return c.kind.controllerName }

// AddIndexes makes the indexes of the two caches that the controller lists by. Register does it.
func (c *Controller[T]) AddIndexes(ctx context.Context, tenantIndexer, hostIndexer client.FieldIndexer) error {
	if err := tenantIndexer.IndexField(ctx, c.kind.object(), fieldClasses, func(object client.Object) []string {
		return devices.Classes(c.kind.spec(object.(T)))
	}); err != nil {
		return fmt.Errorf("indexing %s by device class, %w", c.kind.Kind, err)
	}
	if err := tenantIndexer.IndexField(ctx, c.kind.object(), fieldHostName, func(object client.Object) []string {
		name, err := vcluster.HostName(object.GetName(), object.GetNamespace(), c.planes.TenantCluster.Name)
		if err != nil {
			return nil
		}
		return []string{name}
	}); err != nil {
		return fmt.Errorf("indexing %s by the name on the host, %w", c.kind.Kind, err)
	}
	if c.kind.back == nil {
		return nil
	}
	if err := hostIndexer.IndexField(ctx, c.kind.object(), fieldReservedFor, reservedFor); err != nil {
		return fmt.Errorf("indexing %s by the pods that use them, %w", c.kind.Kind, err)
	}
	return nil
}

func reservedFor(object client.Object) []string {
	claim, ok := object.(*resourcev1.ResourceClaim)
	if !ok {
		return nil
	}
	var pods []string
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			pods = append(pods, consumer.Name)
		}
	}
	return pods
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller[T]) Register(ctx context.Context, m manager.Manager) error {
	if err := c.AddIndexes(ctx, c.planes.Tenant.Cache, c.planes.Management.Cache); err != nil {
		return err
	}
	builder := controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.planes.Tenant.Cache, c.kind.object(), &handler.TypedEnqueueRequestForObject[T]{})).
		WatchesRawSource(source.Kind(c.planes.Management.Cache, c.kind.object(), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, copied T) []reconcile.Request { return c.originsOf(ctx, copied) }))).
		WatchesRawSource(source.Kind(c.planes.Management.Cache, &resourcev1.DeviceClass{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, class *resourcev1.DeviceClass) []reconcile.Request {
				return c.listed(ctx, client.MatchingFields{fieldClasses: class.Name})
			}), decisive())).
		WatchesRawSource(settings.Changes(c.planes, func(ctx context.Context) []reconcile.Request { return c.listed(ctx) })).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentReconciles, CacheSyncTimeout: cacheSyncTimeout})
	if c.kind.back != nil {
		builder = builder.WatchesRawSource(source.Kind(c.planes.Management.Cache, claimstatus.PodMetadata(),
			handler.TypedEnqueueRequestsFromMapFunc(c.usedBy), newPods()))
	}
	return builder.Complete(c)
}

// originsOf are the tenant's objects that an object on the host concerns: the one that it is a copy of, and the one that
// would have its name.
func (c *Controller[T]) originsOf(ctx context.Context, copied client.Object) []reconcile.Request {
	if copied.GetNamespace() != c.planes.TenantCluster.Namespace {
		return nil
	}
	requests := c.listed(ctx, client.MatchingFields{fieldHostName: copied.GetName()})
	if origin, ok := vcluster.OriginOf(copied, c.kind.GroupVersionKind, c.planes.TenantCluster.Name); ok {
		requests = append(requests, reconcile.Request{NamespacedName: origin.NamespacedName})
	}
	return requests
}

// usedBy are the claims that a pod of the host uses. The scheduler may have said so before the pod was seen.
func (c *Controller[T]) usedBy(ctx context.Context, pod *metav1.PartialObjectMetadata) []reconcile.Request {
	list := &resourcev1.ResourceClaimList{}
	if err := c.planes.Management.Client.List(ctx, list, client.InNamespace(pod.Namespace), client.MatchingFields{fieldReservedFor: pod.Name}); err != nil {
		log.FromContext(ctx).Error(err, "listing the claims of a pod", "pod", client.ObjectKeyFromObject(pod))
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, c.originsOf(ctx, &list.Items[i])...)
	}
	return requests
}

// listed are the tenant's objects that the cache lists.
func (c *Controller[T]) listed(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	list := c.kind.list()
	if err := c.planes.Tenant.Client.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "listing objects of the tenant", "kind", c.kind.Kind)
		return nil
	}
	var requests []reconcile.Request
	if err := meta.EachListItem(list, func(item runtime.Object) error {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(item.(client.Object))})
		return nil
	}); err != nil {
		log.FromContext(ctx).Error(err, "listing objects of the tenant", "kind", c.kind.Kind)
	}
	return requests
}

// decisive lets through what can change whether a class is allowed.
func decisive() predicate.TypedPredicate[*resourcev1.DeviceClass] {
	return predicate.TypedFuncs[*resourcev1.DeviceClass]{
		UpdateFunc: func(e event.TypedUpdateEvent[*resourcev1.DeviceClass]) bool {
			return !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) ||
				e.ObjectOld.DeletionTimestamp.IsZero() != e.ObjectNew.DeletionTimestamp.IsZero()
		},
	}
}

// newPods lets through pods that come, and those whose origin comes to be known.
func newPods() predicate.TypedPredicate[*metav1.PartialObjectMetadata] {
	return predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
		UpdateFunc: func(e event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool {
			return !maps.Equal(e.ObjectOld.Annotations, e.ObjectNew.Annotations) || !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels)
		},
		DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
	}
}
