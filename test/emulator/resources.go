// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

// defaultPods is the kubelet's default for max-pods.
const defaultPods = "110"

// resourcesOf returns capacity and allocatable as the kubelet reports them: the hardware, and the hardware minus the
// reservations in the kubelet's arguments.
func resourcesOf(server Server, join bootstrap.Join) (capacity, allocatable corev1.ResourceList) {
	capacity = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(defaultPods)}
	maps.Copy(capacity, server.Capacity)
	if pods, err := resource.ParseQuantity(join.KubeletArgs["max-pods"]); err == nil {
		capacity[corev1.ResourcePods] = pods
	}
	allocatable = capacity.DeepCopy()
	for _, arg := range []string{"kube-reserved", "system-reserved"} {
		for pair := range strings.SplitSeq(join.KubeletArgs[arg], ",") {
			name, amount, _ := strings.Cut(pair, "=")
			left, known := allocatable[corev1.ResourceName(name)]
			reserved, err := resource.ParseQuantity(amount)
			if !known || err != nil {
				continue
			}
			if left.Sub(reserved); left.Sign() < 0 {
				left = resource.Quantity{}
			}
			allocatable[corev1.ResourceName(name)] = left
		}
	}
	return capacity, allocatable
}

// withoutExtended removes extended resources.
func withoutExtended(resources corev1.ResourceList) corev1.ResourceList {
	own := corev1.ResourceList{}
	for name, amount := range resources {
		if !strings.Contains(string(name), "/") {
			own[name] = amount
		}
	}
	return own
}
