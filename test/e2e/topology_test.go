// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

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
// server of the other one is claimed on the way. Another job asks for rack r1, with five pods for its four servers: four
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

// Six pods that need each other, each as big as a server, must be in one NVLink domain. The domain of six has five free servers: none is
// claimed, and an event says what is missing, whether a Job says how many they are or the pods do. Once the sixth is free, all run there.
func TestTopologyGangWhole(t *testing.T) {
	system.Only(t)
	w := enter(t, nvlink)
	const count = 6
	whole := resources("cpu", "4", gpu, "8")
	w.createPool(t, "nvl", 10, resources("cpu", "16", "memory", "64Gi", gpu, "8"), nil)
	first := w.createPods(t, "first", 1, whole, func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{"nvlink-domain": "n2"} })
	w.untilRuns(t, first...)
	together := func(gang string) *corev1.Affinity {
		return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "nvlink-domain", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"gang": gang}},
			}},
		}}
	}
	told := []string{"InsufficientDomainCapacity: no nvlink-domain has capacity for all 6 pods of the gang: n2 has capacity for 5, n1 for 4" +
		"; it gets no server before there is room for all at one time"}

	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: "job"}}
	job.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	job.Spec.Parallelism, job.Spec.Completions = ptr.To[int32](count), ptr.To[int32](count)
	job.Spec.Template.Labels = map[string]string{"gang": "job"}
	job.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{w.container(whole)}, Affinity: together("job"),
	}
	w.group.place(&job.Spec.Template.Spec)
	if err := w.tenant.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "an event on a pod of the Job says that no domain has six free servers", func(ctx context.Context) (string, error) {
		pods := &corev1.PodList{}
		err := w.tenant.List(ctx, pods, client.InNamespace(w.group.namespace), client.MatchingLabels(job.Spec.Template.Labels))
		if err != nil || len(pods.Items) != count {
			return fmt.Sprintf("there are %d pods", len(pods.Items)), err
		}
		return w.podHasEvent(pods.Items[0].Name, told...)(ctx)
	})
	w.remove(t, w.tenant, job)

	pods := w.createPods(t, "six", count, whole, func(pod *corev1.Pod) {
		pod.Labels, pod.Spec.Affinity = map[string]string{"gang": "six"}, together("six")
		pod.Annotations = map[string]string{v1alpha1.GangMinCountAnnotationKey: fmt.Sprint(count)}
	})
	w.eventually(t, "events on the pods six say that no domain has six free servers", w.exactly(0, pods, told...))
	claims, err := w.nodeClaims(t.Context())
	if err != nil || len(claims) != 1 {
		t.Errorf("there are %d NodeClaims, error %v; want that of pod first alone", len(claims), err)
	}
	last := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: first[0]}}
	if err := w.tenant.Delete(t.Context(), last, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the six pods run", w.exactly(count, pods))
	if diff := cmp.Diff(map[string]int{"n2": count}, w.nodeLabels(t, "nvlink-domain", pods)); diff != "" {
		t.Errorf("all six must be in the domain of six (-want +got):\n%s", diff)
	}
	if claims, err = w.nodeClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	planned := slices.DeleteFunc(slices.Clone(claims), func(claim karpv1.NodeClaim) bool {
		return !strings.Contains(claim.Annotations[v1alpha1.GangsAnnotationKey], "gang=six")
	})
	if len(claims) != count || len(planned) != count-1 {
		t.Errorf("there are %d NodeClaims, %d of them for the gang; want %d and %d", len(claims), len(planned), count, count-1)
	}
}
