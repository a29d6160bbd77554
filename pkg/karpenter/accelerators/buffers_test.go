// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestCapacityBuffersRespectAccelerators has core's own provisioner plan for the placeholder pods of a capacity
// buffer, which core makes itself.
func TestCapacityBuffersRespectAccelerators(t *testing.T) {
	gpu, cpu := requests("nvidia.com/gpu", "1"), requests("cpu", "1")
	metadata := metav1.ObjectMeta{Namespace: "default", Name: "shape"}
	template := func(resources corev1.ResourceRequirements) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: pod(0, resources).Spec}
	}
	scalable := func(kind string) autoscalingv1beta1.CapacityBufferSpec {
		return autoscalingv1beta1.CapacityBufferSpec{ScalableRef: &autoscalingv1beta1.ScalableRef{APIGroup: "apps", Kind: kind, Name: "shape"}}
	}
	ofTemplate := autoscalingv1beta1.CapacityBufferSpec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: "shape"}}
	for name, tc := range map[string]struct {
		reason string
		shape  client.Object
		spec   autoscalingv1beta1.CapacityBufferSpec
		types  []*v1alpha1.NodeType
		want   []string
	}{
		"cpu, only GPU servers": {
			reason: "headroom for web servers must not hold GPUs", types: []*v1alpha1.NodeType{a100(2)},
			shape: &corev1.PodTemplate{ObjectMeta: metadata, Template: template(cpu)}, spec: ofTemplate,
		},
		"cpu of a Deployment, only GPU servers": {
			reason: "a buffer can take its shape from a workload", types: []*v1alpha1.NodeType{a100(2)},
			shape: &appsv1.Deployment{ObjectMeta: metadata, Spec: appsv1.DeploymentSpec{Template: template(cpu)}}, spec: scalable("Deployment"),
		},
		"cpu of a StatefulSet, only GPU servers": {
			reason: "a buffer can take its shape from a workload", types: []*v1alpha1.NodeType{a100(2)},
			shape: &appsv1.StatefulSet{ObjectMeta: metadata, Spec: appsv1.StatefulSetSpec{Template: template(cpu)}}, spec: scalable("StatefulSet"),
		},
		"cpu of a ReplicaSet, only GPU servers": {
			reason: "a buffer can take its shape from a workload", types: []*v1alpha1.NodeType{a100(2)},
			shape: &appsv1.ReplicaSet{ObjectMeta: metadata, Spec: appsv1.ReplicaSetSpec{Template: template(cpu)}}, spec: scalable("ReplicaSet"),
		},
		"cpu": {
			reason: "plain servers are for that", types: []*v1alpha1.NodeType{a100(2), plain(1)},
			shape: &corev1.PodTemplate{ObjectMeta: metadata, Template: template(cpu)}, spec: ofTemplate, want: []string{"cpu"},
		},
		"gpu": {
			reason: "headroom for training is a GPU server", types: []*v1alpha1.NodeType{h100(2), a100(2), plain(1)},
			shape: &corev1.PodTemplate{ObjectMeta: metadata, Template: template(gpu)}, spec: ofTemplate, want: []string{"a100-4x"},
		},
		"gpu, only plain servers": {
			reason: "a plain server is no headroom for training", types: []*v1alpha1.NodeType{plain(3)},
			shape: &corev1.PodTemplate{ObjectMeta: metadata, Template: template(gpu)}, spec: ofTemplate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			buffer := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "headroom", UID: "headroom"},
				Spec: tc.spec}
			buffer.Status.Replicas = ptr.To[int32](1)
			buffer.SetCondition(autoscalingv1beta1.ReadyForProvisioningCondition, metav1.ConditionTrue, "Resolved", "")
			withBuffers := func(o *options.Options) { o.FeatureGates.CapacityBuffer = true }
			results := scheduleWith(t, withBuffers, tc.types, tc.shape, buffer)
			var got []string
			for _, planned := range results.NewNodeClaims {
				got = append(got, planned.InstanceTypeOptions.OrderByPrice(planned.Requirements)[0].Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\nerrors: %v", tc.reason, diff, results.PodErrors)
			}
			if len(tc.want) == 0 && len(results.PodErrors) != 1 {
				t.Errorf("%d placeholder pods are without a server, want 1: the buffer was not looked at", len(results.PodErrors))
			}
		})
	}
}
