// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// A buffer keeps one server of eight GPUs ready before a pod needs it. A later pod is bound at once, to a node that was
// there before it, and the buffer is filled again with the other server.
func TestBuffersKeepServerReady(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	// A buffer is looked at every 30 seconds. A node that may be empty for less would go in between.
	w.consolidateAfter(t, "10m")
	w.buffer(t, "training", 1, resources("cpu", "4", gpu, "8"))
	w.eventually(t, "CapacityBuffer training has its server", func(ctx context.Context) (string, error) {
		if missing, err := w.readyNodes(ctx, 1); missing != "" || err != nil {
			return missing, err
		}
		return w.bufferFits(ctx, "training")
	})
	ready := w.claimedHosts(t.Context(), t)

	w.createPod(t, "train", resources("cpu", "4", gpu, "8"))
	w.untilRuns(t, "train")
	host := w.machineOf(t, "train").Status.HostRef.Name
	if _, held := ready[host]; !held {
		t.Errorf("the pod runs on %s, want the server that was held ready: %v", host, ready)
	}

	w.eventually(t, "CapacityBuffer training has another server", func(ctx context.Context) (string, error) {
		if missing, err := w.readyNodes(ctx, 2); missing != "" || err != nil {
			return missing, err
		}
		return w.bufferFits(ctx, "training")
	})
}

// Headroom for pods without accelerators is a plain server. When there is none, no GPU server is held for it.
func TestBuffersPlainPodsGetNoGPUServer(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	w.consolidateAfter(t, "10m")
	// Two of these need two servers, and one plain server is there.
	w.buffer(t, "web", 2, resources("cpu", "20"))
	w.eventually(t, "a plain server is held for CapacityBuffer web", func(ctx context.Context) (string, error) {
		if missing, err := w.readyNodes(ctx, 1); missing != "" || err != nil {
			return missing, err
		}
		_, message, err := w.provisioning(ctx, "web")
		if err != nil || message != "0/2 virtual pods required new capacity, 1 failed" {
			return "the buffer says " + message, err
		}
		return "", nil
	})
	machines, err := w.machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, machine := range machines {
		if got := machine.Status.NodeTypeRef.Name; got != "cpu" {
			t.Errorf("a server of type %s is held for pods without accelerators", got)
		}
	}
}

// readyNodes is a condition: so many nodes of the group are there, and initialized.
func (w *fixture) readyNodes(ctx context.Context, want int) (string, error) {
	nodes := &corev1.NodeList{}
	if err := w.tenant.List(ctx, nodes,
		client.MatchingLabels{karpv1.NodeInitializedLabelKey: "true", karpv1.NodePoolLabelKey: w.group.pools[0]}); err != nil {
		return "", err
	}
	if len(nodes.Items) != want {
		return fmt.Sprintf("%d nodes are ready, want %d", len(nodes.Items), want), nil
	}
	return "", nil
}

// bufferFits is a condition: the nodes that are there have room for all of the buffer.
func (w *fixture) bufferFits(ctx context.Context, name string) (string, error) {
	reason, message, err := w.provisioning(ctx, name)
	if err != nil || reason != "FitsExistingCapacity" {
		return fmt.Sprintf("buffer %s: %s: %s", name, reason, message), err
	}
	return "", nil
}

// provisioning is what Karpenter says of a buffer.
func (w *fixture) provisioning(ctx context.Context, name string) (reason, message string, err error) {
	buffer := w.newBuffer(name)
	if err := w.tenant.Get(ctx, client.ObjectKeyFromObject(buffer), buffer); err != nil {
		return "", "", err
	}
	conditions, _, err := unstructured.NestedSlice(buffer.Object, "status", "conditions")
	for _, entry := range conditions {
		if condition, ok := entry.(map[string]any); ok && condition["type"] == "Provisioning" {
			return fmt.Sprint(condition["reason"]), fmt.Sprint(condition["message"]), err
		}
	}
	return "Unknown", "Karpenter has not looked at it", err
}

// buffer holds room for so many pods that ask for so much, until the test ends.
func (w *fixture) buffer(t *testing.T, name string, replicas int64, asks corev1.ResourceList) {
	t.Helper()
	template := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name},
		Template:   corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{w.container(asks)}}},
	}
	w.group.place(&template.Template.Spec)
	w.make(t, w.tenant, template)
	buffer := w.newBuffer(name)
	buffer.Object["spec"] = map[string]any{"podTemplateRef": map[string]any{"name": name}, "replicas": replicas}
	w.make(t, w.tenant, buffer)
}

func (w *fixture) newBuffer(name string) *unstructured.Unstructured {
	buffer := &unstructured.Unstructured{}
	buffer.SetAPIVersion("autoscaling.x-k8s.io/v1beta1")
	buffer.SetKind("CapacityBuffer")
	buffer.SetNamespace(w.group.namespace)
	buffer.SetName(name)
	return buffer
}
