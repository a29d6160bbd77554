// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
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

// podsAreSeen is a condition: kube-scheduler has tried all pods of the group, so that Karpenter plans for those without a node.
func (w *fixture) podsAreSeen(ctx context.Context) (string, error) {
	pods := &corev1.PodList{}
	err := w.tenant.List(ctx, pods, client.InNamespace(w.group.namespace))
	for i := range pods.Items {
		if !slices.ContainsFunc(pods.Items[i].Status.Conditions,
			func(condition corev1.PodCondition) bool { return condition.Type == corev1.PodScheduled }) {
			return "pod " + pods.Items[i].Name + " has no condition", nil
		}
	}
	return "", err
}

// untilRuns waits until the pods run.
func (w *fixture) untilRuns(t *testing.T, pods ...string) {
	t.Helper()
	for _, name := range pods {
		w.eventually(t, "pod "+w.group.namespace+"/"+name+" runs", w.runs(name))
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

// machineOf returns the Machine that the pod's node is, once it says so: Metal3 asks Ironic every ten seconds, and a server may have
// booted and joined before Metal3 knows that it is provisioned.
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
	_, _, name, _ := v1alpha1.ParseProviderID(node.Spec.ProviderID)
	machine := &v1alpha1.Machine{}
	w.eventually(t, "Machine "+name+" has joined as node "+node.Name, func(ctx context.Context) (string, error) {
		err := w.management.Get(ctx, client.ObjectKey{Namespace: tenantNamespace, Name: name}, machine)
		if err == nil && machine.Status.Phase != v1alpha1.MachineJoined {
			return "it is " + string(machine.Status.Phase), nil
		}
		return "", err
	})
	if machine.Status.ProviderID != node.Spec.ProviderID {
		t.Fatalf("Machine %s has the provider ID %q, and node %s has %q", name, machine.Status.ProviderID, node.Name, node.Spec.ProviderID)
	}
	return machine
}
