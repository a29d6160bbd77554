// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accelerators keeps pods that request no accelerator off new servers with accelerators.
//
// Core picks the cheapest type that fits, and a GPU server fits every small pod once everything else is taken. Core has
// no option to exclude a type in that case, but it respects node affinity. Types with accelerators have the label
// karpenter.metal3.io/accelerated as a requirement, and no other type has it. In core's view, pods that request no
// accelerator require that the label does not exist. Core treats the topology of volumes the same way.
//
// The placeholder pods of a capacity buffer are in no list: core builds them from a PodTemplate or a workload that it
// gets by name, so they get the requirement there. Pods with resource claims are not restricted, because only device
// classes define what a claim requests. The manager refuses the server unless core has allocated its devices to them.
//
// This is safe because core never writes a pod or a template back: it evicts and deletes by name. Nodes never have the
// label, so pods still fit existing nodes, with accelerators or without.
package accelerators

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// MayNeed reports whether a pod may run on a new server with accelerators: it requests one, it has resource claims,
// whose purpose only their device classes define, or it belongs to a DaemonSet, which follows the nodes.
func MayNeed(pod *corev1.Pod) bool {
	if len(pod.Spec.ResourceClaims) > 0 {
		return true
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return true
	}
	if requestsAccelerator(pod.Spec.Resources) {
		return true
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if requestsAccelerator(&containers[i].Resources) {
				return true
			}
		}
	}
	return false
}

func requestsAccelerator(resources *corev1.ResourceRequirements) bool {
	if resources == nil {
		return false
	}
	return len(v1alpha1.Accelerators(resources.Requests)) > 0 || len(v1alpha1.Accelerators(resources.Limits)) > 0
}

// absent is the requirement that keeps pods off types with accelerators.
var absent = corev1.NodeSelectorRequirement{Key: v1alpha1.AcceleratedLabelKey, Operator: corev1.NodeSelectorOpDoesNotExist}

// Pods adds the requirement to the pods that core lists.
func Pods() interceptor.Interceptor {
	return interceptor.OnList(func(_ context.Context, pods *corev1.PodList, _ []client.ListOption) error {
		for i := range pods.Items {
			restrict(&pods.Items[i].Spec, MayNeed(&pods.Items[i]))
		}
		return nil
	})
}

// Templates adds the requirement to the templates of the pods of capacity buffers. Those pods exist only in core, which
// never lists them.
func Templates() interceptor.Interceptor {
	return interceptor.OnGet(func(_ context.Context, object client.Object, _ []client.GetOption) error {
		var template *corev1.PodTemplateSpec
		switch typed := object.(type) {
		case *corev1.PodTemplate:
			template = &typed.Template
		case *appsv1.Deployment:
			template = &typed.Spec.Template
		case *appsv1.StatefulSet:
			template = &typed.Spec.Template
		case *appsv1.ReplicaSet:
			template = &typed.Spec.Template
		default:
			return nil
		}
		restrict(&template.Spec, MayNeed(&corev1.Pod{Spec: template.Spec}))
		return nil
	})
}

func restrict(pod *corev1.PodSpec, mayNeed bool) {
	if !mayNeed {
		pod.Affinity = interceptor.WithNodeRequirements(pod.Affinity, absent)
	}
}
