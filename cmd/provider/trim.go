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

// trimmed removes large fields that nobody here reads from the tenant's kinds with thousands of objects. Nobody may
// update a trimmed object as a whole. Karpenter's core and the controllers of this project send patches, and a patch
// leaves out a field that both of its sides lack.
func trimmed() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: operator.TrimAlso(trimNode)},
		&corev1.Pod{}:  {Transform: operator.TrimAlso(trimPod)},
		// A Deployment keeps ten old ReplicaSets.
		&appsv1.ReplicaSet{}: {Transform: operator.TrimAlso(func(set *appsv1.ReplicaSet) { trimContainers(&set.Spec.Template.Spec) })},
	}
}

// trimNode drops the list of images on a node, by default 50.
func trimNode(node *corev1.Node) { node.Status.Images = nil }

// trimPod drops the commands, environment and probes of containers. Only a pod's requests and constraints decide
// where it is scheduled.
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

// sharedLabels maps the text of a domain's labels to the labels. NodeTypes with servers in the same rack have the
// same domain.
var sharedLabels sync.Map

// shareLabels makes NodeTypes share the labels of a domain. With 500 racks of ten types, each type would keep 150 KiB
// of labels.
func shareLabels(nodeType *v1alpha1.NodeType) {
	nodeType.Status.Domains = slices.Clone(nodeType.Status.Domains) // the decoder leaves spare capacity
	for i := range nodeType.Status.Domains {
		domain := &nodeType.Status.Domains[i]
		shared, _ := sharedLabels.LoadOrStore(labels.Set(domain.Labels).String(), domain.Labels)
		domain.Labels = shared.(map[string]string)
	}
}
