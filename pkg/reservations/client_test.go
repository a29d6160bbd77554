// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func TestKeepOut(t *testing.T) {
	rack := karpenterv1.NodeSelectorRequirementWithMinValues{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{"r1"}}
	nodeClaim := &karpenterv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
	nodeClaim.Spec.Requirements = []karpenterv1.NodeSelectorRequirementWithMinValues{
		{Key: v1alpha1.ReservationIDLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"a100.1a2b3c4d"}}, rack,
	}
	c := KeepOut(fake.NewClientBuilder().WithScheme(scheme.Scheme).Build())
	if err := c.Create(t.Context(), nodeClaim); err != nil {
		t.Fatal(err)
	}
	stored := &karpenterv1.NodeClaim{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(nodeClaim), stored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]karpenterv1.NodeSelectorRequirementWithMinValues{rack}, stored.Spec.Requirements); diff != "" {
		t.Errorf("what pods ask for stays, what core planned with does not (-want +got):\n%s", diff)
	}
}
