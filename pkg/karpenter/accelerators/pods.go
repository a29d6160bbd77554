// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// MayNeed tells whether a pod may run on a new server with accelerators: it requests one, or it has resource claims, whose
// purpose only their device classes define, or it belongs to a DaemonSet, which follows the nodes.
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

// absent is the requirement of pods that must not get a type with accelerators.
var absent = corev1.NodeSelectorRequirement{Key: v1alpha1.AcceleratedLabelKey, Operator: corev1.NodeSelectorOpDoesNotExist}
