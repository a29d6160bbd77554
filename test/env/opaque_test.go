// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestOpaqueFieldsAreKept: whatever the schema admits in fields that nothing here reads, clients can read the object, alone and in a
// list, and what a controller writes changes none of it.
func TestOpaqueFieldsAreKept(t *testing.T) {
	const anything = `{a: null, b: [1, "x", {c: 1.5}], enabled: "yes", Enabled: [], large: 12345678901234567890, nested: {d: {e: f}}}`
	namespace := environment.Namespace(t)
	for name, tc := range map[string]struct {
		reason, kind, spec string
		typed              client.Object
		list               client.ObjectList
	}{
		"TenantCluster": {"of a vcluster.yaml", "TenantCluster", "{apiServerEndpoint: 'a:6443', privateNodes: {kubelet: " + anything + ", " +
			"joinNode: " + anything + ", vpn: " + anything + "}}",
			&v1alpha1.TenantCluster{}, &v1alpha1.TenantClusterList{}},
		"NodeProvider": {"of the reference's NodeProvider", "NodeProvider", "{metal3: {clusterRef: {namespace: x}, deploy: " + anything +
			", netris: " + anything + "}}", &v1alpha1.NodeProvider{}, &v1alpha1.NodeProviderList{}},
	} {
		t.Run(name, func(t *testing.T) {
			c, ctx, in := environment.Client, t.Context(), ""
			if tc.kind == "TenantCluster" {
				in = namespace
			}
			written := object(t, tc.kind, "opaque", in, tc.spec)
			if err := c.Create(ctx, written); err != nil {
				t.Fatalf("%s, %v", tc.reason, err)
			}
			t.Cleanup(func() {
				if err := c.Delete(context.Background(), written); client.IgnoreNotFound(err) != nil {
					t.Error(err)
				}
			})
			if err := c.Get(ctx, client.ObjectKeyFromObject(written), tc.typed); err != nil {
				t.Fatalf("reading %s, %v", tc.reason, err)
			}
			before := tc.typed.DeepCopyObject().(client.Object)
			tc.typed.SetLabels(map[string]string{"a": "b"})
			if err := c.Patch(ctx, tc.typed, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
			if err := c.Status().Update(ctx, tc.typed); err != nil {
				t.Fatal(err)
			}
			if err := c.List(ctx, tc.list); err != nil || meta.LenList(tc.list) == 0 {
				t.Errorf("listing %s, %v", tc.reason, err)
			}
			now := &unstructured.Unstructured{}
			now.SetGroupVersionKind(written.GroupVersionKind())
			if err := c.Get(ctx, client.ObjectKeyFromObject(written), now); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(written.Object["spec"], now.Object["spec"]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
