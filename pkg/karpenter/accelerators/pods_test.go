// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

func requests(pairs ...string) corev1.ResourceRequirements {
	list := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return corev1.ResourceRequirements{Requests: list}
}

func TestMayNeed(t *testing.T) {
	container := func(resources corev1.ResourceRequirements) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Resources: resources}}}
	}
	podLevel := requests("amd.com/gpu", "1")
	controller := true
	for name, tc := range map[string]struct {
		reason string
		spec   corev1.PodSpec
		owner  string
		want   bool
	}{
		"cpu": {reason: "a GPU server would be wasted on it",
			spec: container(requests("cpu", "4", "memory", "1Gi", "ephemeral-storage", "1Gi", "hugepages-2Mi", "1Gi"))},
		"nothing":   {reason: "as above", spec: container(corev1.ResourceRequirements{})},
		"gpu":       {reason: "it asks for one", spec: container(requests("nvidia.com/gpu", "1")), want: true},
		"zero gpus": {reason: "it asks for none, in so many words", spec: container(requests("nvidia.com/gpu", "0"))},
		"MIG slice": {reason: "by whatever name the vendor gives it", spec: container(requests("nvidia.com/mig-1g.10gb", "1")), want: true},
		"limit": {reason: "the API server makes it a request",
			spec: container(corev1.ResourceRequirements{Limits: requests("nvidia.com/gpu", "1").Requests}), want: true},
		"init container": {reason: "it runs on the same node",
			spec: corev1.PodSpec{InitContainers: []corev1.Container{{Resources: requests("nvidia.com/gpu", "1")}}}, want: true},
		"pod level": {reason: "resources of the whole pod count too", spec: corev1.PodSpec{Resources: &podLevel}, want: true},
		"resource claims": {reason: "only device classes know what they are for",
			spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}}}, want: true},
		"daemon":  {reason: "it follows the nodes there are", spec: container(requests("cpu", "1")), owner: "DaemonSet", want: true},
		"replica": {reason: "it does not", spec: container(requests("cpu", "1")), owner: "ReplicaSet"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: tc.spec}
			if tc.owner != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: tc.owner, Name: "owner", Controller: &controller}}
			}
			if got := MayNeed(pod); got != tc.want {
				t.Errorf("got %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestRequirementIsAddedToAffinity(t *testing.T) {
	lacks := corev1.NodeSelectorRequirement{Key: v1alpha1.AcceleratedLabelKey, Operator: corev1.NodeSelectorOpDoesNotExist}
	in := func(value string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	}
	term := func(expressions ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: expressions}
	}
	required := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	preferred := []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: term(in("r1"))}}
	together := &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "rack"}}}
	for name, tc := range map[string]struct {
		reason   string
		affinity *corev1.Affinity
		want     *corev1.Affinity
	}{
		"none":     {"the requirement stands alone", nil, required(term(lacks))},
		"one term": {"both must hold", required(term(in("r1"))), required(term(in("r1"), lacks))},
		"alternatives": {"core may drop the first when nothing meets it; the next must say it too", required(term(in("r1")), term(in("r2"))),
			required(term(in("r1"), lacks), term(in("r2"), lacks))},
		"preferences and pods": {
			"what the pod wants besides is kept",
			&corev1.Affinity{PodAffinity: together, NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}},
			&corev1.Affinity{PodAffinity: together, NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: preferred,
				RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term(lacks)}},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.affinity.DeepCopy()
			if diff := cmp.Diff(tc.want, interceptor.WithNodeRequirements(tc.affinity, absent)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, tc.affinity); diff != "" {
				t.Errorf("the affinity itself, which may be the cache's, has changed (-before +after):\n%s", diff)
			}
		})
	}
}
