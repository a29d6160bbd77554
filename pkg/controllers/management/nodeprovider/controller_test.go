// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeprovider

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
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
