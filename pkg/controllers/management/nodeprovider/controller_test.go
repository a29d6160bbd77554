// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeprovider

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// A NodeType is mapped to its owner, and to a provider with a template of its name, which waits for its deletion.
func TestProvidersOf(t *testing.T) {
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	provider := func(name string, templates ...string) *v1alpha1.NodeProvider {
		provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, template := range templates {
			provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes, v1alpha1.NodeTypeTemplate{Name: template})
		}
		return provider
	}
	owner, waiting, other := provider("owner"), provider("waiting", "contested"), provider("other", "another")
	owner.UID, waiting.UID, other.UID = "owner", "waiting", "other"
	contested := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "contested", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeProvider", Name: "owner", UID: "owner", Controller: ptr.To(true),
	}}}}
	c := &Controller{client: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(owner, waiting, other).Build()}
	requests := c.providersOf(t.Context(), contested)
	if len(requests) != 2 || requests[0].Name != "owner" || requests[1].Name != "waiting" {
		t.Errorf("got requests %v, want owner and waiting", requests)
	}
}

// TestTypesAreNotCopied: the status of a NodeType, with the counts of each rack, changes with each claim. Its provider copies none of them
// out of the cache for that, and changes nothing there when it updates one.
func TestTypesAreNotCopied(t *testing.T) {
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{{Name: "h100"}}
	provider.Spec.Metal3.NodeTypes[0].Resources = env.Resources("cpu", "96", "memory", "768Gi")
	cached, copies, updates := []v1alpha1.NodeType(nil), 0, 0
	api := fake.NewClientBuilder().WithScheme(env.Scheme()).WithStatusSubresource(&v1alpha1.NodeProvider{}, &v1alpha1.NodeType{}).
		WithObjects(provider).WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if !ptr.Deref((&client.ListOptions{}).ApplyOptions(options).UnsafeDisableDeepCopy, false) {
				copies++
			}
			list.(*v1alpha1.NodeTypeList).Items = cached
			return nil
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			updates++
			return c.Update(ctx, object, options...)
		}}).Build()
	c := NewController(api, api, inventory.NewInventory(inventory.Options{}), events.NewFakeRecorder(10), clock.RealClock{})
	reconcile := func() {
		t.Helper()
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(provider), provider); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reconcile(t.Context(), provider); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	made := v1alpha1.NodeType{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: "h100"}, &made); err != nil {
		t.Fatal(err)
	}
	cached = []v1alpha1.NodeType{made}
	if reconcile(); updates != 0 {
		t.Errorf("%d updates of a NodeType that is as the template says", updates)
	}
	provider.Spec.Metal3.NodeTypes[0].Metadata = &v1alpha1.NodeTypeMetadata{Labels: map[string]string{"team": "a"}}
	provider.Spec.Metal3.NodeTypes[0].Resources = env.Resources("cpu", "64", "memory", "768Gi")
	if err := api.Update(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	updates = 0 // that of the provider
	before := made.DeepCopy()
	reconcile()
	if diff := cmp.Diff(before, &cached[0]); diff != "" || updates != 1 || copies > 0 {
		t.Errorf("%d updates, %d copies, and the cache is another: %s", updates, copies, diff)
	}
	err := api.Get(t.Context(), client.ObjectKey{Name: "h100"}, &made)
	if cpu := made.Spec.Resources["cpu"]; err != nil || made.Labels["team"] != "a" || cpu.String() != "64" {
		t.Errorf("the NodeType is %+v, %v", made, err)
	}
}
