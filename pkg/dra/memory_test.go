// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/claims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/classes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// reconciler is a controller that adds indexes to the caches.
type reconciler interface {
	Reconcile(context.Context, reconcile.Request) (reconcile.Result, error)
	AddIndexes(context.Context) error
}

// syncers are the controllers of claims for the clusters.
func syncers(clusters tenant.Clusters, events *eventLog) (copies, templates, generated reconciler) {
	return claims.NewClaimController(clusters, clock.RealClock{}, events), claims.NewTemplateController(clusters, clock.RealClock{}, events),
		claims.NewGeneratedController(clusters, events)
}

// indexRecorder is a cache that keeps the indexes which are added to it.
type indexRecorder struct {
	cache.Cache
	indexes []env.Index
}

func (r *indexRecorder) IndexField(_ context.Context, object client.Object, field string, values client.IndexerFunc) error {
	r.indexes = append(r.indexes, env.Index{Object: object, Field: field, Values: values})
	return nil
}

// clientWithMapper knows which kinds are served, as the fake client does not.
type clientWithMapper struct {
	client.Client
	mapper meta.RESTMapper
}

func (c clientWithMapper) RESTMapper() meta.RESTMapper { return c.mapper }

// newMemoryFixture is newFixture without API servers: run reconciles all objects again and again, without watches.
func newMemoryFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{T: t, events: &eventLog{}, class: "gpu", memory: true, cluster: types.NamespacedName{Namespace: "tenant-blue", Name: "blue"},
		namespace: "ml"}
	host, inTenant := &indexRecorder{}, &indexRecorder{}
	copies, templates, generated := syncers(tenant.Clusters{TenantCluster: w.cluster,
		Tenant: tenant.Cluster{Cache: inTenant}, Management: tenant.Cluster{Cache: host}}, w.events)
	for _, c := range []reconciler{copies, templates, generated} {
		w.must(c.AddIndexes(t.Context()))
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"DeviceClass", "ResourceClaim", "ResourceClaimTemplate"} {
		mapper.Add(resourcev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	w.host = clientWithMapper{env.Fake(t, host.indexes...).Client, mapper}
	w.tenant = clientWithMapper{env.Fake(t, inTenant.indexes...).Client, mapper}
	for _, c := range []client.Client{w.host, w.tenant} {
		w.must(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}))
	}
	w.createCluster()
	w.createClass(w.class, nil)
	return w
}

// runInMemory runs the controllers until the end of the test or the call of what it returns.
func (w *fixture) runInMemory(p *process) (stop func()) {
	clusters := tenant.Clusters{TenantCluster: w.cluster,
		Tenant:     p.watch(tenant.Cluster{Client: w.tenant, Live: w.tenant}, "tenant"),
		Management: p.watch(tenant.Cluster{Client: w.host, Live: w.host}, "host")}
	condition := NewController(clock.RealClock{}, clusters)
	classController := classes.NewController(clusters, w.events)
	copies, templates, generated := syncers(clusters, w.events)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			cluster := &v1alpha1.TenantCluster{}
			if err := clusters.Management.Client.Get(ctx, w.cluster, cluster); err == nil {
				_, _ = condition.Reconcile(ctx, cluster) // every error is followed by another attempt
			}
			w.reconcileAll(ctx, classController, &resourcev1.DeviceClassList{})
			w.reconcileAll(ctx, copies, &resourcev1.ResourceClaimList{})
			w.reconcileAll(ctx, templates, &resourcev1.ResourceClaimTemplateList{})
			w.reconcileGenerated(ctx, generated)
			time.Sleep(time.Millisecond)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-stopped })
	w.Cleanup(stop)
	return stop
}

type reconcileFunc interface {
	Reconcile(context.Context, reconcile.Request) (reconcile.Result, error)
}

// reconcileAll reconciles all objects of the tenant, and the origins of those on the host.
func (w *fixture) reconcileAll(ctx context.Context, c reconcileFunc, list client.ObjectList) {
	keys := map[types.NamespacedName]bool{}
	for _, from := range []client.Client{w.tenant, w.host} {
		for _, object := range listed(ctx, from, list) {
			key := client.ObjectKeyFromObject(object)
			annotations := object.GetAnnotations()
			if name := annotations[names.NameAnnotation]; name != "" {
				key = types.NamespacedName{Namespace: annotations[names.NamespaceAnnotation], Name: name}
			}
			keys[key] = true
		}
	}
	for key := range keys {
		_, _ = c.Reconcile(ctx, reconcile.Request{NamespacedName: key}) // every error is followed by another attempt
	}
}

// reconcileGenerated reconciles all claims of the host, and those that claims of the tenant mirror.
func (w *fixture) reconcileGenerated(ctx context.Context, c reconcileFunc) {
	keys := map[types.NamespacedName]bool{}
	for _, object := range listed(ctx, w.host, &resourcev1.ResourceClaimList{}) {
		keys[client.ObjectKeyFromObject(object)] = true
	}
	for _, object := range listed(ctx, w.tenant, &resourcev1.ResourceClaimList{}) {
		if name := object.GetAnnotations()[v1alpha1.HostClaimAnnotationKey]; name != "" {
			keys[types.NamespacedName{Namespace: w.cluster.Namespace, Name: name}] = true
		}
	}
	for key := range keys {
		_, _ = c.Reconcile(ctx, reconcile.Request{NamespacedName: key}) // every error is followed by another attempt
	}
}

func listed(ctx context.Context, from client.Client, list client.ObjectList) []client.Object {
	var objects []client.Object
	if err := from.List(ctx, list); err != nil {
		return nil
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil
	}
	for _, item := range items {
		objects = append(objects, item.(client.Object))
	}
	return objects
}
