// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// reads is a cache that has what a client has.
type reads struct {
	cache.Cache
	client client.Client
}

func (r reads) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return r.client.Get(ctx, key, object, opts...)
}

func (r reads) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return r.client.List(ctx, list, opts...)
}

// TestTypesFollow: a type has servers while it, its NodeProvider and no TenantCluster beside its servers are there,
// whichever of them comes or goes.
func TestTypesFollow(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := fake.NewClientBuilder().WithScheme(scheme).Build()
	servers := inventory.NewInventory(inventory.Options{})
	servers.SetHost(env.AvailableHost("metal3", "s1", map[string]string{"gpu": "h100"}))
	types := &types{cache: reads{client: objects}, inventory: servers}

	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "metal"}}
	provider.Spec.Metal3.ClusterRef.Namespace = "metal3"
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100"}}
	nodeType.Spec.ProviderRef.Name = "metal"
	nodeType.Spec.BareMetalHosts = &v1alpha1.HostSelection{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "h100"}},
	}
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "acme"}}
	create := func(object client.Object) func() error {
		return func() error { return objects.Create(t.Context(), object) }
	}
	remove := func(object client.Object) func() error {
		return func() error { return objects.Delete(t.Context(), object) }
	}
	ofType := func(ctx context.Context) error { return types.add(ctx, "h100") }
	ofProvider := func(ctx context.Context) error { return types.addAll(ctx, sets.New("metal")) }
	ofTenant := func(ctx context.Context) error { return types.addOfNamespace(ctx, "metal3") }
	for _, step := range []struct {
		what   string
		change func() error
		event  func(context.Context) error
		want   int32
	}{
		{"the type comes before its provider", create(nodeType), ofType, 0},
		{"the provider comes", create(provider), ofProvider, 1},
		{"a tenant comes beside the servers", create(tenant), ofTenant, 0},
		{"the tenant goes", remove(tenant), ofTenant, 1},
		{"the type goes", remove(nodeType), ofType, 0},
	} {
		if err := step.change(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if err := step.event(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := servers.Total("h100"); got != step.want {
			t.Errorf("%s: %d servers, want %d", step.what, got, step.want)
		}
	}
}
