// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFormerNode: what a provider of the version before has reported in annotations.
func TestFormerNode(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 11, 22, 15, 4, 5, 0, time.UTC))
	for name, tc := range map[string]struct {
		reason      string
		annotations map[string]string
		has, want   *MachineNode
	}{
		"Nothing": {reason: "the Machine has no node", annotations: map[string]string{"example.com/x": "y"}},
		"All": {
			reason: "all that there was",
			annotations: map[string]string{
				"karpenter.metal3.io/node-name": "gpu-1", "karpenter.metal3.io/kubernetes-version": "v1.36",
				"karpenter.metal3.io/node-resources": `{"cpu":"96"}`,
				"karpenter.metal3.io/unhealthy":      "GpuMemWatch is True since 2026-11-22T15:04:05Z: GPU 3: bad",
			},
			want: &MachineNode{
				Name: "gpu-1", KubernetesVersion: "v1.36", Resources: corev1.ResourceList{"cpu": resource.MustParse("96")},
				Unhealthy: &UnhealthyNode{Condition: "GpuMemWatch", Status: corev1.ConditionTrue, Since: since, Message: "GPU 3: bad"},
			},
		},
		"Later": {
			reason:      "the provider was upgraded between the two",
			annotations: map[string]string{"karpenter.metal3.io/node-name": "gpu-1"}, has: &MachineNode{KubernetesVersion: "v1.36"},
			want: &MachineNode{Name: "gpu-1", KubernetesVersion: "v1.36"},
		},
		"Known": {
			reason:      "the field counts",
			annotations: map[string]string{"karpenter.metal3.io/node-name": "other"}, has: &MachineNode{Name: "gpu-1"},
		},
		"Forged": {
			reason: "the API server would refuse all of it, and the Machine would stand still",
			annotations: map[string]string{
				"karpenter.metal3.io/node-name": strings.Repeat("n", 254), "karpenter.metal3.io/kubernetes-version": strings.Repeat("1", 33),
				"karpenter.metal3.io/node-resources": `{"nvidia.com/gpu":"1"}`, "karpenter.metal3.io/unhealthy": "it is broken",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &Machine{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}, Spec: MachineSpec{Node: tc.has}}
			got, more := machine.FormerNode()
			if more != (tc.want != nil) {
				t.Errorf("%s: it says more than the field: %t", tc.reason, more)
			}
			if diff := cmp.Diff(tc.want, got); more && diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestReportFormerly: after a rollback and another upgrade, the Machine has what was reported.
func TestReportFormerly(t *testing.T) {
	machine := &Machine{}
	machine.ReportNode(func(node *MachineNode) { node.KubernetesVersion = "v1.36" })
	machine.ReportNode(func(node *MachineNode) { node.Name = "gpu-1" })
	machine.ReportNode(func(node *MachineNode) {
		node.Resources = corev1.ResourceList{"memory": resource.MustParse("760Gi")}
		node.Unhealthy = &UnhealthyNode{Condition: "Ready", Status: corev1.ConditionUnknown, Message: "kubelet is silent",
			Since: metav1.NewTime(time.Date(2026, 11, 22, 15, 4, 5, 0, time.UTC))}
	})
	reported := machine.Spec.Node
	if _, more := machine.FormerNode(); more {
		t.Error("the annotations say more than the field that they are made of")
	}
	machine.Spec.Node = nil // the earlier definition does not have it
	if got, more := machine.FormerNode(); !more || cmp.Diff(reported, got) != "" {
		t.Errorf("after a rollback, more %t (-want +got):\n%s", more, cmp.Diff(reported, got))
	}
}
