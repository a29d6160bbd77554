// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// leafLabel is how NVIDIA's scheduling plugins call a rack. On a sandbox, nodes inherit the label rack under this key too.
const leafLabel = "network.topology.nvidia.com/leaf"

// Pods select servers in the ecosystem's words: by the leaf switch of their rack, by region, and by the number of GPUs. The reference
// fleet has H100 servers with eight in two racks, and cheaper A100 servers with four in the same racks.
func TestMappedTopologyAndInstanceLabels(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	if w.sandbox == nil {
		t.Skip("this test needs programs with a --topology-labels that maps rack to " + leafLabel)
	}
	moreThanFour := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: v1alpha1.InstanceGPUCountLabelKey, Operator: corev1.NodeSelectorOpGt, Values: []string{"4"}},
		}}},
	}}
	for _, step := range []struct {
		pod, gpus string
		affinity  *corev1.NodeAffinity
	}{{"leaf", "4", nil}, {"big", "8", moreThanFour}} {
		pods := w.createPods(t, step.pod, 1, resources("cpu", "1", gpu, "1"), func(pod *corev1.Pod) {
			pod.Spec.NodeSelector = map[string]string{leafLabel: "rack-b", corev1.LabelTopologyRegion: "us-east-1"}
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: step.affinity}
		})
		w.eventually(t, "pod "+step.pod+" runs", w.exactly(1, pods))
		for key, want := range map[string]string{
			v1alpha1.InstanceGPUCountLabelKey: step.gpus, v1alpha1.InstanceGPUManufacturerLabelKey: "nvidia", "rack": "rack-b",
			leafLabel: "rack-b", corev1.LabelTopologyRegion: "us-east-1",
		} {
			if diff := cmp.Diff(map[string]int{want: 1}, w.nodeLabels(t, key, pods)); diff != "" {
				t.Errorf("%s of the node of pod %s (-want +got):\n%s", key, step.pod, diff)
			}
		}
	}
}

// There are two NVLink domains, of four and of six free servers. A training job has five pods that must be in one
// domain, each as big as a server; the job does not name the domain. All of them run, in the domain that has room for five, and no
// server of the other one is claimed on the way. The pool is created last, so that Karpenter plans the five pods at once: a gang that
// arrives in parts may begin in the domain of four. Another job asks for rack r1, with five pods for its four servers: four
// run, and the fifth is told how full the rack is, while a server in the other rack stays free.
func TestTopologyGangAndRack(t *testing.T) {
	system.Only(t)
	w := enter(t, nvlink)
	ctx, stop := context.WithCancel(t.Context())
	made, counted := w.countNodeClaims(ctx, t)
	whole := resources("cpu", "4", gpu, "8")

	gang := w.createPods(t, "train", 5, whole, func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"job": "train"}
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "nvlink-domain", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}},
			}},
		}}
	})
	w.eventually(t, "kube-scheduler has seen the pods train", w.podsAreSeen)
	w.createPool(t, "nvl", 10, resources("cpu", "16", "memory", "64Gi", gpu, "8"), nil)
	w.eventually(t, "the five pods train run", w.exactly(5, gang))
	if diff := cmp.Diff(map[string]int{"n2": 5}, w.nodeLabels(t, "nvlink-domain", gang)); diff != "" {
		t.Errorf("all five must be in the domain of six (-want +got):\n%s", diff)
	}

	inRack := w.createPods(t, "in-r1", 5, whole, func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"rack": "r1"} })
	w.eventually(t, "four of the pods in-r1 run, and an event on the fifth says why not",
		w.exactly(4, inRack, "nvl: 4 servers match in rack r1, 4 claimed, 0 in error"))
	if diff := cmp.Diff(map[string]int{"r1": 4}, w.nodeLabels(t, "rack", inRack)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	stop()
	<-counted
	if len(made) != 9 {
		t.Errorf("%d NodeClaims were made for 9 servers: %v", len(made), made)
	}
}
