// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const gpu = "nvidia.com/gpu"

// resources makes a list from name, quantity, name, quantity...
func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// createPod creates a pod that asks for resources.
func (w *fixture) createPod(t *testing.T, name string, asks corev1.ResourceList) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{w.container(asks)}},
	}
	w.group.place(&pod.Spec)
	if err := w.tenant.Create(t.Context(), pod); err != nil {
		t.Fatalf("creating pod %s, %v", name, err)
	}
}

// runs is a condition: the pod runs.
func (w *fixture) runs(name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		pod := &corev1.Pod{}
		if err := w.tenant.Get(ctx, client.ObjectKey{Namespace: w.group.namespace, Name: name}, pod); err != nil {
			return "", err
		}
		if pod.Status.Phase != corev1.PodRunning {
			events, err := w.events(ctx, name)
			return fmt.Sprintf("pod %s is %s; its events: %q", name, pod.Status.Phase, events), err
		}
		return "", nil
	}
}

// podHasEvent is a condition: an event on the pod holds all parts.
func (w *fixture) podHasEvent(name string, parts ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		events, err := w.events(ctx, name)
		if err != nil {
			return "", err
		}
		for _, event := range events {
			if containsAll(event, parts...) == "" {
				return "", nil
			}
		}
		return fmt.Sprintf("no event of pod %s holds %q; there are %q", name, parts, events), nil
	}
}

// machineOf returns the Machine that the pod's node is.
func (w *fixture) machineOf(t *testing.T, pod string) *v1alpha1.Machine {
	t.Helper()
	placed := &corev1.Pod{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Namespace: w.group.namespace, Name: pod}, placed); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: placed.Spec.NodeName}, node); err != nil {
		t.Fatal(err)
	}
	machines, err := w.machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range machines {
		if machines[i].Status.ProviderID == node.Spec.ProviderID && node.Spec.ProviderID != "" {
			return &machines[i]
		}
	}
	t.Fatalf("no Machine has the provider ID %q of node %s", node.Spec.ProviderID, node.Name)
	return nil
}
