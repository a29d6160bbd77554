// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
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

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// Index fields of claims and templates in the caches.
const (
	// fieldClasses indexes the tenant's objects by the device classes that they name.
	fieldClasses = "dra/deviceClasses"
	// fieldHostName indexes the tenant's objects by their name on the host.
	fieldHostName = "dra/hostName"
	// fieldReservedFor indexes the host's claims by the pods that use them.
	fieldReservedFor = "dra/reservedFor"
	// fieldPod indexes claims of both clusters by the pod that the claim was generated for.
	fieldPod = "dra/generated/pod"
	// fieldHostClaim indexes the tenant's claims by the generated claim of the host that they mirror.
	fieldHostClaim = "dra/generated/hostClaim"
	// fieldGeneratedClasses indexes the host's generated claims by their device classes.
	fieldGeneratedClasses = "dra/generated/deviceClasses"
)

var options = controller.Options{MaxConcurrentReconciles: kube.Concurrency, CacheSyncTimeout: kube.CacheSyncTimeout}

func addIndex[T client.Object](ctx context.Context, indexer client.FieldIndexer, object T, field string, values func(T) []string) error {
	if err := indexer.IndexField(ctx, object, field, func(object client.Object) []string { return values(object.(T)) }); err != nil {
		return fmt.Errorf("indexing %T by %s, %w", object, field, err)
	}
	return nil
}

// Name implements Karpenter's controller interface.
func (c *CopyController[T]) Name() string { return c.kind.controllerName }

// AddIndexes adds the controller's indexes to the two caches. Register calls it.
func (c *CopyController[T]) AddIndexes(ctx context.Context) error {
	if err := addIndex(ctx, c.clusters.Tenant.Cache, c.kind.object(), fieldClasses, func(object T) []string {
		return policy.Classes(c.kind.spec(object))
	}); err != nil {
		return err
	}
	if err := addIndex(ctx, c.clusters.Tenant.Cache, c.kind.object(), fieldHostName, func(object T) []string {
		name, err := names.HostNameShort(object.GetName(), object.GetNamespace(), c.clusters.TenantCluster.Name)
		if err != nil {
			return nil
		}
		return []string{name}
	}); err != nil || c.kind.mirrorStatus == nil {
		return err
	}
	return addIndex(ctx, c.clusters.Management.Cache, &resourcev1.ResourceClaim{}, fieldReservedFor,
		func(claim *resourcev1.ResourceClaim) []string {
			var pods []string
			for _, consumer := range claim.Status.ReservedFor {
				if consumer.APIGroup == "" && consumer.Resource == "pods" {
					pods = append(pods, consumer.Name)
				}
			}
			return pods
		})
}

// Register implements Karpenter's controller interface, with the manager of the tenant cluster.
func (c *CopyController[T]) Register(ctx context.Context, m manager.Manager) error {
	if err := c.AddIndexes(ctx); err != nil {
		return err
	}
	host := c.clusters.Management.Cache
	builder := controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(c.clusters.Tenant.Cache, c.kind.object(), &handler.TypedEnqueueRequestForObject[T]{})).
		WatchesRawSource(source.Kind(host, c.kind.object(), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, copied T) []reconcile.Request { return c.originsOf(ctx, copied) }))).
		WatchesRawSource(source.Kind(host, &resourcev1.DeviceClass{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, class *resourcev1.DeviceClass) []reconcile.Request {
				return c.listed(ctx, client.MatchingFields{fieldClasses: class.Name})
			}), allowedMayChange())).
		WatchesRawSource(policy.Changes(c.clusters, func(ctx context.Context) []reconcile.Request { return c.listed(ctx) })).
		WithOptions(options)
	if c.kind.mirrorStatus != nil {
		builder = builder.WatchesRawSource(source.Kind(host, podMetadata(), handler.TypedEnqueueRequestsFromMapFunc(c.usedBy), podKnown()))
	}
	return builder.Complete(c)
}

// originsOf returns the tenant's objects for an object on the host: its origin, and the one whose copy has its name.
func (c *CopyController[T]) originsOf(ctx context.Context, copied client.Object) []reconcile.Request {
	if copied.GetNamespace() != c.clusters.TenantCluster.Namespace {
		return nil
	}
	requests := c.listed(ctx, client.MatchingFields{fieldHostName: copied.GetName()})
	origin, ok := names.OriginOf(copied, c.kind.GroupVersionKind, c.clusters.TenantCluster.Name)
	if !ok {
		origin, ok = names.OriginOfLongNamed(copied, c.kind.GroupVersionKind, c.clusters.TenantCluster.Name)
	}
	if ok {
		requests = append(requests, reconcile.Request{NamespacedName: origin.NamespacedName})
	}
	return requests
}

// usedBy returns the claims that a pod of the host uses. The scheduler may have reserved them before we saw the pod.
func (c *CopyController[T]) usedBy(ctx context.Context, pod *metav1.PartialObjectMetadata) []reconcile.Request {
	claims := &resourcev1.ResourceClaimList{}
	if err := c.clusters.Management.Client.List(ctx, claims, client.InNamespace(pod.Namespace),
		client.MatchingFields{fieldReservedFor: pod.Name}); err != nil {
		log.FromContext(ctx).Error(err, "listing the claims of a pod", "pod", client.ObjectKeyFromObject(pod))
		return nil
	}
	var requests []reconcile.Request
	for i := range claims.Items {
		requests = append(requests, c.originsOf(ctx, &claims.Items[i])...)
	}
	return requests
}

// listed returns requests for the tenant's objects that the cache lists.
func (c *CopyController[T]) listed(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	return kube.Requests(ctx, c.clusters.Tenant.Client, c.kind.list(), opts...)
}

// Name implements Karpenter's controller interface.
func (c *GeneratedController) Name() string { return "dra.generatedclaims" }

// AddIndexes adds the controller's indexes to the two caches. Register calls it.
func (c *GeneratedController) AddIndexes(ctx context.Context) error {
	podName := func(claim *resourcev1.ResourceClaim) []string {
		if owner := podOwner(claim); owner != nil {
			return []string{owner.Name}
		}
		return nil
	}
	hostClaim := func(claim *resourcev1.ResourceClaim) []string {
		if name := claim.Annotations[v1alpha1.HostClaimAnnotationKey]; name != "" && podOwner(claim) != nil {
			return []string{name}
		}
		return nil
	}
	generatedClasses := func(claim *resourcev1.ResourceClaim) []string {
		if podOwner(claim) == nil {
			return nil
		}
		return policy.Classes(&claim.Spec)
	}
	for _, index := range []struct {
		indexer client.FieldIndexer
		field   string
		values  func(*resourcev1.ResourceClaim) []string
	}{
		{c.clusters.Tenant.Cache, fieldPod, podName},
		{c.clusters.Management.Cache, fieldPod, podName},
		{c.clusters.Tenant.Cache, fieldHostClaim, hostClaim},
		{c.clusters.Management.Cache, fieldGeneratedClasses, generatedClasses},
	} {
		if err := addIndex(ctx, index.indexer, &resourcev1.ResourceClaim{}, index.field, index.values); err != nil {
			return err
		}
	}
	return nil
}

// Register implements Karpenter's controller interface, with the manager of the tenant cluster.
func (c *GeneratedController) Register(ctx context.Context, m manager.Manager) error {
	if err := c.AddIndexes(ctx); err != nil {
		return err
	}
	host, tenant := c.clusters.Management.Cache, c.clusters.Tenant.Cache
	generated := predicate.NewTypedPredicateFuncs(func(claim *resourcev1.ResourceClaim) bool { return podOwner(claim) != nil })
	inNamespace := predicate.NewTypedPredicateFuncs(func(claim *resourcev1.ResourceClaim) bool {
		return claim.Namespace == c.clusters.TenantCluster.Namespace
	})
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(host, &resourcev1.ResourceClaim{},
			&handler.TypedEnqueueRequestForObject[*resourcev1.ResourceClaim]{}, generated, inNamespace)).
		WatchesRawSource(source.Kind(host, podMetadata(), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, pod *metav1.PartialObjectMetadata) []reconcile.Request {
				return c.hostClaims(ctx, client.MatchingFields{fieldPod: pod.Name})
			}), podKnown())).
		WatchesRawSource(source.Kind(host, &resourcev1.DeviceClass{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, class *resourcev1.DeviceClass) []reconcile.Request {
				return c.hostClaims(ctx, client.MatchingFields{fieldGeneratedClasses: class.Name})
			}), allowedMayChange())).
		WatchesRawSource(source.Kind(tenant, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, pod *corev1.Pod) []reconcile.Request {
				return c.claimsOf(ctx, pod.Namespace, pod.Name)
			}), claimsNamed())).
		WatchesRawSource(source.Kind(tenant, &resourcev1.ResourceClaim{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, claim *resourcev1.ResourceClaim) []reconcile.Request {
				requests := c.claimsOf(ctx, claim.Namespace, podOwner(claim).Name)
				// If the host's claim is gone, only this request leads to it.
				if name := claim.Annotations[v1alpha1.HostClaimAnnotationKey]; name != "" {
					requests = append(requests,
						reconcile.Request{NamespacedName: client.ObjectKey{Namespace: c.clusters.TenantCluster.Namespace, Name: name}})
				}
				return requests
			}), generated)).
		WatchesRawSource(policy.Changes(c.clusters, func(ctx context.Context) []reconcile.Request { return c.hostClaims(ctx) })).
		WithOptions(options).
		Complete(c)
}

// claimsOf returns requests for the host's claims for a pod of the tenant.
func (c *GeneratedController) claimsOf(ctx context.Context, namespace, name string) []reconcile.Request {
	hostName, err := names.HostName(name, namespace, c.clusters.TenantCluster.Name)
	if err != nil {
		return nil
	}
	return c.hostClaims(ctx, client.MatchingFields{fieldPod: hostName})
}

// hostClaims returns requests for the host's claims that the cache lists in the tenant's namespace.
func (c *GeneratedController) hostClaims(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	return kube.Requests(ctx, c.clusters.Management.Client, &resourcev1.ResourceClaimList{},
		append(opts, client.InNamespace(c.clusters.TenantCluster.Namespace))...)
}

// allowedMayChange passes events that can change whether a class is allowed.
func allowedMayChange() predicate.TypedPredicate[*resourcev1.DeviceClass] {
	return predicate.TypedFuncs[*resourcev1.DeviceClass]{
		UpdateFunc: func(e event.TypedUpdateEvent[*resourcev1.DeviceClass]) bool {
			return !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) ||
				e.ObjectOld.DeletionTimestamp.IsZero() != e.ObjectNew.DeletionTimestamp.IsZero()
		},
	}
}

// podKnown passes the host's pods when they are created, and when their metadata, which names their origin, changes.
func podKnown() predicate.TypedPredicate[*metav1.PartialObjectMetadata] {
	return predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
		UpdateFunc: func(e event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool {
			return !maps.Equal(e.ObjectOld.Annotations, e.ObjectNew.Annotations) || !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels)
		},
		DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
	}
}

// claimsNamed passes the tenant's pods with claims when they are created, and when the names of their claims change.
func claimsNamed() predicate.TypedPredicate[*corev1.Pod] {
	return predicate.TypedFuncs[*corev1.Pod]{
		CreateFunc: func(e event.TypedCreateEvent[*corev1.Pod]) bool { return len(e.Object.Spec.ResourceClaims) > 0 },
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Pod]) bool {
			return !resourceclaim.PodStatusEqual(e.ObjectOld.Status.ResourceClaimStatuses, e.ObjectNew.Status.ResourceClaimStatuses)
		},
		DeleteFunc: func(event.TypedDeleteEvent[*corev1.Pod]) bool { return false },
	}
}
