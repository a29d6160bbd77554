// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package generated

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Fields by which the caches index claims.
const (
	// fieldPod, in both clusters: the pod that the claim was made for.
	fieldPod = "dra/generated/pod"
	// fieldHostClaim, in the tenant: the claim of the host that this one was made for.
	fieldHostClaim = "dra/generated/hostClaim"
	// fieldClasses, on the host: the device classes of claims that were made for pods.
	fieldClasses = "dra/generated/deviceClasses"
)

const (
	concurrentReconciles = 10
	// cacheSyncTimeout is how long the first answer of an API may take. The process must not end because of it: it has
	// other things to do than this.
	cacheSyncTimeout = 24 * time.Hour
)

// Name implements Karpenter's controller interface.
func (c *Controller) Name() string { return "dra.generatedclaims" }

// AddIndexes makes the indexes of the two caches that the controller lists by. Register does it.
func (c *Controller) AddIndexes(ctx context.Context, tenantIndexer, hostIndexer client.FieldIndexer) error {
	for _, index := range []struct {
		indexer client.FieldIndexer
		field   string
		values  func(*resourcev1.ResourceClaim) []string
	}{
		{tenantIndexer, fieldPod, podName},
		{hostIndexer, fieldPod, podName},
		{tenantIndexer, fieldHostClaim, func(claim *resourcev1.ResourceClaim) []string {
			if name := claim.Annotations[HostClaimAnnotation]; name != "" && podOwner(claim) != nil {
				return []string{name}
			}
			return nil
		}},
		{hostIndexer, fieldClasses, func(claim *resourcev1.ResourceClaim) []string {
			if podOwner(claim) == nil {
				return nil
			}
			return devices.Classes(&claim.Spec)
		}},
	} {
		if err := index.indexer.IndexField(ctx, &resourcev1.ResourceClaim{}, index.field, func(object client.Object) []string {
			return index.values(object.(*resourcev1.ResourceClaim))
		}); err != nil {
			return fmt.Errorf("indexing ResourceClaims by %s, %w", index.field, err)
		}
	}
	return nil
}

func podName(claim *resourcev1.ResourceClaim) []string {
	if owner := podOwner(claim); owner != nil {
		return []string{owner.Name}
	}
	return nil
}

// Register implements Karpenter's controller interface. The manager is that of the tenant cluster.
func (c *Controller) Register(ctx context.Context, m manager.Manager) error {
	if err := c.AddIndexes(ctx, c.planes.Tenant.Cache, c.planes.Management.Cache); err != nil {
		return err
	}
	host, tenant := c.planes.Management.Cache, c.planes.Tenant.Cache
	forPods := predicate.NewTypedPredicateFuncs(func(claim *resourcev1.ResourceClaim) bool { return podOwner(claim) != nil })
	return controllerruntime.NewControllerManagedBy(m).
		Named(c.Name()).
		WatchesRawSource(source.Kind(host, &resourcev1.ResourceClaim{}, &handler.TypedEnqueueRequestForObject[*resourcev1.ResourceClaim]{}, forPods,
			predicate.NewTypedPredicateFuncs(func(claim *resourcev1.ResourceClaim) bool {
				return claim.Namespace == c.planes.TenantCluster.Namespace
			}))).
		WatchesRawSource(source.Kind(host, claimstatus.PodMetadata(), handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, pod *metav1.PartialObjectMetadata) []reconcile.Request {
				return c.hostClaims(ctx, client.MatchingFields{fieldPod: pod.Name})
			}), newPods())).
		WatchesRawSource(source.Kind(host, &resourcev1.DeviceClass{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, class *resourcev1.DeviceClass) []reconcile.Request {
				return c.hostClaims(ctx, client.MatchingFields{fieldClasses: class.Name})
			}), predicate.TypedLabelChangedPredicate[*resourcev1.DeviceClass]{})).
		WatchesRawSource(source.Kind(tenant, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, pod *corev1.Pod) []reconcile.Request {
				return c.claimsOf(ctx, pod.Namespace, pod.Name)
			}), renamed())).
		WatchesRawSource(source.Kind(tenant, &resourcev1.ResourceClaim{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, claim *resourcev1.ResourceClaim) []reconcile.Request {
				requests := c.claimsOf(ctx, claim.Namespace, podOwner(claim).Name)
				// The host's claim may be gone, and then nothing but this leads to it.
				if name := claim.Annotations[HostClaimAnnotation]; name != "" {
					requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: c.planes.TenantCluster.Namespace, Name: name}})
				}
				return requests
			}), forPods)).
		WatchesRawSource(settings.Changes(c.planes, func(ctx context.Context) []reconcile.Request { return c.hostClaims(ctx) })).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentReconciles, CacheSyncTimeout: cacheSyncTimeout}).
		Complete(c)
}

// claimsOf are the host's claims for a pod of the tenant.
func (c *Controller) claimsOf(ctx context.Context, namespace, name string) []reconcile.Request {
	hostName, err := vcluster.HostName(name, namespace, c.planes.TenantCluster.Name)
	if err != nil {
		return nil
	}
	return c.hostClaims(ctx, client.MatchingFields{fieldPod: hostName})
}

func (c *Controller) hostClaims(ctx context.Context, opts ...client.ListOption) []reconcile.Request {
	claims := &resourcev1.ResourceClaimList{}
	opts = append(opts, client.InNamespace(c.planes.TenantCluster.Namespace), client.UnsafeDisableDeepCopy)
	if err := c.planes.Management.Client.List(ctx, claims, opts...); err != nil {
		log.FromContext(ctx).Error(err, "listing ResourceClaims of the host")
		return nil
	}
	var requests []reconcile.Request
	for i := range claims.Items {
		if podOwner(&claims.Items[i]) != nil {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
		}
	}
	return requests
}

// newPods lets through the host's pods that come, and those whose origin comes to be known.
func newPods() predicate.TypedPredicate[*metav1.PartialObjectMetadata] {
	return predicate.TypedFuncs[*metav1.PartialObjectMetadata]{
		UpdateFunc: func(e event.TypedUpdateEvent[*metav1.PartialObjectMetadata]) bool {
			return !maps.Equal(e.ObjectOld.Annotations, e.ObjectNew.Annotations) || !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels)
		},
		DeleteFunc: func(event.TypedDeleteEvent[*metav1.PartialObjectMetadata]) bool { return false },
	}
}

// renamed lets through the tenant's pods with templates when the names of their claims come to be known.
func renamed() predicate.TypedPredicate[*corev1.Pod] {
	return predicate.TypedFuncs[*corev1.Pod]{
		CreateFunc: func(e event.TypedCreateEvent[*corev1.Pod]) bool { return len(e.Object.Spec.ResourceClaims) > 0 },
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Pod]) bool {
			return !equality.Semantic.DeepEqual(e.ObjectOld.Status.ResourceClaimStatuses, e.ObjectNew.Status.ResourceClaimStatuses)
		},
		DeleteFunc: func(event.TypedDeleteEvent[*corev1.Pod]) bool { return false },
	}
}
