// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
)

func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// evicted are 440Gi without the kubelet's 10 %, which it has as a 32-bit number.
const evicted = "425201761600"

func TestResourcesOf(t *testing.T) {
	hardware := resources("cpu", "8", "memory", "16Gi", "nvidia.com/gpu", "4")
	cases := map[string]struct {
		reason                string
		args                  map[string]string
		capacity, allocatable corev1.ResourceList
	}{
		"Plain": {"firmware and kernel keep 2 % of the memory, and kubelet what it evicts for", nil,
			resources("cpu", "8", "memory", "16057Mi", "nvidia.com/gpu", "4", "pods", "110", "ephemeral-storage", "440Gi"),
			resources("cpu", "8", "memory", "15957Mi", "nvidia.com/gpu", "4", "pods", "110", "ephemeral-storage", evicted)},
		"Reserved": {"what kubelet reserves is not for pods",
			map[string]string{"kube-reserved": "cpu=500m,memory=1Gi", "system-reserved": "cpu=500m", "max-pods": "30"},
			resources("cpu", "8", "memory", "16057Mi", "nvidia.com/gpu", "4", "pods", "30", "ephemeral-storage", "440Gi"),
			resources("cpu", "7", "memory", "14933Mi", "nvidia.com/gpu", "4", "pods", "30", "ephemeral-storage", evicted)},
		"TooMuch": {"allocatable is clamped at zero", map[string]string{"kube-reserved": "cpu=9,other=3"},
			resources("cpu", "8", "memory", "16057Mi", "nvidia.com/gpu", "4", "pods", "110", "ephemeral-storage", "440Gi"),
			resources("cpu", "0", "memory", "15957Mi", "nvidia.com/gpu", "4", "pods", "110", "ephemeral-storage", evicted)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			capacity, allocatable := resourcesOf(Server{Capacity: hardware}, bootstrap.Join{KubeletArgs: tc.args})
			if diff := cmp.Diff(tc.capacity, capacity); diff != "" {
				t.Errorf("%s: capacity -want +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.allocatable, allocatable); diff != "" {
				t.Errorf("%s: allocatable -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNodeBeforeDevicePlugins(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	node := nodeOf(now, Server{Capacity: resources("cpu", "8", "nvidia.com/gpu", "4")}, bootstrap.Join{NodeName: "a"})
	for disk, got := range map[string]corev1.ResourceList{"440Gi": node.Status.Capacity, evicted: node.Status.Allocatable} {
		if diff := cmp.Diff(resources("cpu", "8", "pods", "110", "ephemeral-storage", disk), got); diff != "" {
			t.Errorf("a kubelet registers without GPUs, -want +got:\n%s", diff)
		}
	}
	for _, condition := range node.Status.Conditions {
		if !condition.LastTransitionTime.Time.Equal(now) {
			t.Errorf("condition %s has no transition time for %s: Karpenter's node repair would count from the epoch",
				condition.Type, condition.Status)
		}
	}
}
