// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant"
)

// Changes is a source of requests for all objects that depend on a tenant's settings, when these change.
func Changes(clusters tenant.Clusters, requests func(context.Context) []reconcile.Request) source.Source {
	own := func(cluster *v1alpha1.TenantCluster) bool {
		return cluster.Namespace == clusters.TenantCluster.Namespace && cluster.Name == clusters.TenantCluster.Name
	}
	return source.Kind(clusters.Management.Cache, &v1alpha1.TenantCluster{},
		handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, _ *v1alpha1.TenantCluster) []reconcile.Request {
			return requests(ctx)
		}),
		predicate.TypedFuncs[*v1alpha1.TenantCluster]{
			CreateFunc: func(e event.TypedCreateEvent[*v1alpha1.TenantCluster]) bool { return own(e.Object) },
			DeleteFunc: func(e event.TypedDeleteEvent[*v1alpha1.TenantCluster]) bool { return own(e.Object) },
			UpdateFunc: func(e event.TypedUpdateEvent[*v1alpha1.TenantCluster]) bool {
				return own(e.ObjectNew) && !equality.Semantic.DeepEqual(e.ObjectOld.Spec.Sync, e.ObjectNew.Spec.Sync)
			},
		})
}
