// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// An operator deletes a Machine under a running Deployment: its NodeClaim and its Node go, the server goes back to the
// pool, and the Deployment's pod runs on another one. Then a NodeClaim is deleted by force, so that Karpenter never
// asks for its server back: the Machine is released all the same.
func TestGarbageCollection(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	deployment := w.createDeployment(t, "web", resources("cpu", "4", "memory", "16Gi", gpu, "1"))
	pod := w.podOf(t, deployment)
	machine := w.machineOf(t, pod)

	if err := w.management.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "Machine "+machine.Name+", its NodeClaim and its Node are gone", func(ctx context.Context) (string, error) {
		for _, deleted := range []struct {
			from   client.Client
			object client.Object
			key    client.ObjectKey
		}{
			{w.tenant, &karpv1.NodeClaim{}, client.ObjectKey{Name: machine.Labels[v1alpha1.NodeClaimLabelKey]}},
			{w.tenant, &corev1.Node{}, client.ObjectKey{Name: machine.Status.NodeName}},
			{w.management, &v1alpha1.Machine{}, client.ObjectKeyFromObject(machine)},
		} {
			if err := deleted.from.Get(ctx, deleted.key, deleted.object); err == nil {
				return fmt.Sprintf("there is still %T %s", deleted.object, deleted.key.Name), nil
			} else if !apierrors.IsNotFound(err) {
				return "", err
			}
		}
		return "", nil
	})
	w.eventually(t, "an event on the NodeClaim of Machine "+machine.Name+" says why it is gone",
		w.hasEvent("NodeClaim", machine.Labels[v1alpha1.NodeClaimLabelKey], "MachineDeleted", "its Machine "+machine.Name+" is being deleted"))
	next := w.machineOf(t, w.podOf(t, deployment))
	if next.Name == machine.Name {
		t.Errorf("the pod is still on Machine %s", next.Name)
	}

	if err := w.tenant.Delete(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	claim := &karpv1.NodeClaim{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: next.Labels[v1alpha1.NodeClaimLabelKey]}, claim); err != nil {
		t.Fatal(err)
	}
	before := claim.DeepCopy()
	claim.Finalizers = nil
	if err := w.tenant.Delete(t.Context(), claim.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := client.IgnoreNotFound(w.tenant.Patch(t.Context(), claim, client.MergeFrom(before))); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "Machine "+next.Name+", whose NodeClaim has vanished, is released", func(ctx context.Context) (string, error) {
		err := w.management.Get(ctx, client.ObjectKeyFromObject(next), &v1alpha1.Machine{})
		if err == nil {
			return "it is still there", nil
		}
		return "", client.IgnoreNotFound(err)
	})
	if claimed := w.claimedHosts(t.Context(), t); claimed[next.Status.HostRef.Name] != "" {
		t.Errorf("server %s is still claimed", next.Status.HostRef.Name)
	}
}

// createDeployment creates a Deployment of one pod, that goes at the end of the test.
func (w *fixture) createDeployment(t *testing.T, name string, asks corev1.ResourceList) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{w.container(asks)}},
			},
		},
	}
	w.group.place(&deployment.Spec.Template.Spec)
	if err := w.tenant.Create(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(w.tenant.Delete(context.Background(), deployment)); err != nil {
			t.Error(err)
		}
	})
	return deployment
}

// podOf waits until a pod of the Deployment runs, and returns its name.
func (w *fixture) podOf(t *testing.T, deployment *appsv1.Deployment) string {
	t.Helper()
	name := ""
	w.eventually(t, "a pod of Deployment "+deployment.Name+" runs", func(ctx context.Context) (string, error) {
		pods := &corev1.PodList{}
		if err := w.tenant.List(ctx, pods, client.InNamespace(deployment.Namespace),
			client.MatchingLabels(deployment.Spec.Selector.MatchLabels)); err != nil {
			return "", err
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp.IsZero() {
				name = pod.Name
				return "", nil
			}
		}
		return fmt.Sprintf("none of %d pods", len(pods.Items)), nil
	})
	return name
}
