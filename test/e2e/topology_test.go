// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// There are two NVLink domains, of four and of six free servers. A training job has five pods that must be in one
// domain, each as big as a server; the job does not name the domain. All of them run, in the domain that has room for five, and no
// server of the other one is claimed on the way. Another job asks for rack r1, with five pods for its four servers: four
// run, and the fifth is told how full the rack is, while a server in the other rack stays free.
func TestTopologyGangAndRack(t *testing.T) {
	system.Only(t)
	w := enter(t, nvlink)
	w.createPool(t, "nvl", 10, resources("cpu", "16", "memory", "64Gi", gpu, "8"), nil)
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
