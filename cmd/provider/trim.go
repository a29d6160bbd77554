// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

// trimmed are the kinds of the tenant of which there are thousands, without what is big and nobody here reads. Nobody may write such an
// object as a whole. Karpenter's core and the controllers of this project send patches, and what both sides of a patch lack is not in it.
func trimmed() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: operator.TrimAlso(trimNode)},
		&corev1.Pod{}:  {Transform: operator.TrimAlso(trimPod)},
		// A Deployment keeps ten ReplicaSets of its past.
		&appsv1.ReplicaSet{}: {Transform: operator.TrimAlso(func(set *appsv1.ReplicaSet) { trimContainers(&set.Spec.Template.Spec) })},
	}
}

// trimNode drops the images that a node has, 50 of them by default.
func trimNode(node *corev1.Node) { node.Status.Images = nil }

// trimPod drops what containers run and how kubelet looks after them. A pod is scheduled by what it requests and where it may run.
func trimPod(pod *corev1.Pod) { trimContainers(&pod.Spec) }

func trimContainers(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			c.Command, c.Args, c.Env, c.EnvFrom = nil, nil, nil, nil
			c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
		}
	}
}

// sharedLabels are labels of domains by their text. A type has each rack with servers of it, so that several types have the same labels.
var sharedLabels sync.Map

// shareLabels has NodeTypes keep the labels of a domain once. With 500 racks of ten types each would keep 150 KiB of them.
func shareLabels(nodeType *v1alpha1.NodeType) {
	nodeType.Status.Domains = slices.Clone(nodeType.Status.Domains) // the decoder leaves room for more
	for i := range nodeType.Status.Domains {
		domain := &nodeType.Status.Domains[i]
		shared, _ := sharedLabels.LoadOrStore(labels.Set(domain.Labels).String(), domain.Labels)
		domain.Labels = shared.(map[string]string)
	}
}
