// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/nodelabels"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// TestLabelsOfEarlierNodes: nodes of a version that knew the keys of the reference alone get the labels by ours, too.
func TestLabelsOfEarlierNodes(t *testing.T) {
	nodeType, image := v1alpha1.NodeTypeLabelKey, v1alpha1.PropertyOSImage
	older := map[string]string{v1alpha1.ReferenceKey(nodeType): "h100", v1alpha1.ReferenceKey(image): "ubuntu", "rack": "r1"}
	for name, tc := range map[string]struct {
		reason         string
		has, own, want map[string]string
		providerID     string
	}{
		"Earlier": {reason: "as a version before has left it", has: older, own: older,
			want: map[string]string{v1alpha1.ReferenceKey(nodeType): "h100", v1alpha1.ReferenceKey(image): "ubuntu", "rack": "r1",
				nodeType: "h100", image: "ubuntu"}},
		"Present": {reason: "this version writes both, and a label that a user has taken away stays away",
			has:  map[string]string{nodeType: "h100", v1alpha1.ReferenceKey(nodeType): "h100"},
			own:  map[string]string{v1alpha1.ReferenceKey(nodeType): "h100"},
			want: map[string]string{v1alpha1.ReferenceKey(nodeType): "h100"}},
		"Set": {reason: "what a user has written stays", has: older, own: map[string]string{nodeType: "mine", image: "mine"},
			want: map[string]string{nodeType: "mine", image: "mine"}},
		"Other": {reason: "it is another server's", has: older, own: older, want: older, providerID: "metal3://other/server/m"},
	} {
		t.Run(name, func(t *testing.T) {
			api := env.Fake(t)
			cluster := tenanttest.TenantCluster(t, api)
			clusters := tenanttest.ClustersOf(cluster, api.Client, api.Client)
			machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "m",
				Labels: map[string]string{v1alpha1.NodeClaimLabelKey: "m"}}}
			machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: cluster.Name}
			machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "h100"}
			machine.ReportNode(func(node *v1alpha1.MachineNode) { node.Name = "m" })
			providerID := v1alpha1.ProviderID("metal3", "server", "m")
			machine.Status.ProviderID, machine.Status.NodeLabels = providerID, tc.has
			if tc.providerID != "" {
				providerID = tc.providerID
			}
			nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: tc.own}, Spec: karpv1.NodeClaimSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "c"},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
			}}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: tc.own}, Spec: corev1.NodeSpec{ProviderID: providerID}}
			for _, object := range []client.Object{nodeClaim, node} {
				if err := api.Client.Create(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			nodeClaim.Status.ProviderID = providerID
			if err := api.Client.Status().Update(t.Context(), nodeClaim); err != nil {
				t.Fatal(err)
			}
			controller := nodelabels.NewController(clusters)
			for range 2 { // again, it changes nothing
				if _, err := controller.Reconcile(t.Context(), machine); err != nil {
					t.Fatal(err)
				}
			}
			for _, object := range []client.Object{nodeClaim, node} {
				if err := api.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, object.GetLabels()); diff != "" {
					t.Errorf("%s: labels of the %T (-want +got):\n%s", tc.reason, object, diff)
				}
			}
		})
	}
}
