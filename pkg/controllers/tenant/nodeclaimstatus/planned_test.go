// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaimstatus

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// TestNodeAsPlanned looks at one node that is initialized, or not yet.
func TestNodeAsPlanned(t *testing.T) {
	planned := list("cpu", "95", "memory", "700Gi", "ephemeral-storage", "100Gi", "pods", "110", "nvidia.com/gpu", "8")
	for name, tc := range map[string]struct {
		reason  string
		early   bool
		planned corev1.ResourceList
		has     corev1.ResourceList
		args    v1alpha1.KubeletArgs
		says    string
		reports corev1.ResourceList
	}{
		"AsPlanned": {reason: "the type has 768Gi, a GiB reserved", planned: planned,
			has:     list("cpu", "95", "memory", "752Gi", "ephemeral-storage", "100Gi", "pods", "110"),
			reports: list("cpu", "96", "memory", "771172Mi")},
		"Smaller": {reason: "pods that were planned for it may wait", planned: planned,
			has:  list("cpu", "90", "memory", "699Gi", "ephemeral-storage", "90Gi", "pods", "100"),
			says: "cpu 90 of 95, memory 699Gi of 700Gi, ephemeral-storage 90Gi of 100Gi, pods 100 of 110",
			// What is reserved is added, and what the kubelet evicts for.
			reports: list("cpu", "91", "memory", "716900Mi")},
		"Class": {reason: "what the class sets aside is not missing from the server", planned: list("cpu", "85"),
			args: v1alpha1.KubeletArgs{"system-reserved": "cpu=10,memory=8Gi"},
			has:  list("cpu", "85", "memory", "744Gi"), reports: list("cpu", "96", "memory", "771172Mi")},
		"Model": {reason: "some KiB more or less are none of the server", planned: planned,
			has: list("cpu", "95", "memory", "788529700Ki"), reports: list("cpu", "96", "memory", "771172Mi")},
		"NotMeasured": {reason: "the tenant would be planned with nothing", planned: list("cpu", "95"),
			has: list("cpu", "95", "memory", "0"), reports: list("cpu", "96")},
		"Early": {reason: "a kubelet that has just started does not know all of it", early: true, planned: planned, has: list("cpu", "95")},
	} {
		t.Run(name, func(t *testing.T) {
			if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
				t.Fatal(err)
			}
			nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: "h100-8x"}}
			nodeType.Spec.Resources = list("cpu", "96", "memory", "768Gi", "ephemeral-storage", "200Gi")
			nodeType.Spec.Overhead = &v1alpha1.NodeTypeOverhead{KubeReserved: list("cpu", "1", "memory", "1Gi")}
			nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", UID: "claim"}}
			nodeClaim.Status.ProviderID, nodeClaim.Status.NodeName, nodeClaim.Status.Allocatable = providerID, "gpu-1", tc.planned
			if !tc.early {
				conditions.Set(&nodeClaim.Status.Conditions, metav1.Condition{Type: karpv1.ConditionTypeInitialized, Status: metav1.ConditionTrue})
			}
			machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "gpu-1",
				Labels:      map[string]string{v1alpha1.NodeClaimLabelKey: "gpu-1"},
				Annotations: map[string]string{v1alpha1.NodeClaimUIDAnnotationKey: "claim"}}}
			machine.Spec.TenantClusterRef, machine.Spec.KubeletArgs = &v1alpha1.NameReference{Name: "tenant"}, tc.args
			machine.Status.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType.Name}
			machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Up"}}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}, Spec: corev1.NodeSpec{ProviderID: providerID}}
			node.Status.Allocatable, node.Status.Capacity = tc.has, tc.has
			api := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(nodeClaim, node, machine).
				WithObjects(nodeType, nodeClaim, machine, node).Build()
			recorder := &published{}
			c := NewController(clocktesting.NewFakePassiveClock(time.Unix(0, 0)), tenant.Clusters{
				TenantCluster: client.ObjectKey{Namespace: "tenant", Name: "tenant"},
				Tenant:        tenant.Cluster{Client: api, Live: api}, Management: tenant.Cluster{Client: api, Live: api},
			}, recorder, DefaultResourcesGrace)
			for range 2 {
				if _, err := c.Reconcile(t.Context(), request); err != nil {
					t.Fatal(err)
				}
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(nodeClaim), nodeClaim); err != nil {
				t.Fatal(err)
			}
			got := conditions.Find(nodeClaim.Status.Conditions, v1alpha1.ConditionNodeAsPlanned)
			if (tc.says == "") != (got.Status == "") || !strings.Contains(got.Message, tc.says) {
				t.Errorf("%s: %+v, want one that says %q", tc.reason, got, tc.says)
			}
			smaller := 0
			for _, event := range *recorder {
				if event.Reason == v1alpha1.ReasonNodeSmaller {
					smaller++
				}
			}
			if want := map[bool]int{false: 0, true: 2}[tc.says != ""]; smaller != want {
				t.Errorf("%d events, want %d, on the NodeClaim and on the Node: %v", smaller, want, *recorder)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
				t.Fatal(err)
			}
			reported := machine.ReportedNode().Resources
			delete(reported, corev1.ResourceEphemeralStorage) // a share, to the byte
			if diff := cmp.Diff(tc.reports, reported); diff != "" {
				t.Errorf("%s: the manager is told (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
