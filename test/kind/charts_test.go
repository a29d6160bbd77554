// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	managerLease = "karpenter-metal3-manager"
	podName      = "train"
	gpu          = "nvidia.com/gpu"
)

// TestCharts goes on with docs/install.md where kind-env has ended: the charts that it has installed do the main job, are
// upgraded, and are uninstalled. It leaves clusters without our charts, where TestChartsFromRegistry, the last test of an environment,
// goes on.
func TestCharts(t *testing.T) {
	w := newFixture(t)

	w.logf("== the charts are installed, by the page's commands")
	w.checkChartPods(t, releaseNamespace, map[string]int{"manager": 2, "webhook": 2})
	w.checkChartPods(t, tenantNamespace, map[string]int{"provider": 1})
	w.checkConfined(t, releaseNamespace)
	w.checkConfined(t, tenantNamespace)
	w.checkWebhookDenies(t)

	w.logf("== the tenant creates a pod that requests a GPU; there is no node for it")
	w.applyFleet(t)
	w.createPod(t)
	w.untilClaimed(t)
	w.deleteLeader(t)
	running := w.untilPodRuns(t)
	w.checkFamilies(t, running)

	w.logf("== the charts are upgraded; the pod keeps running")
	w.follow(t, w.upgradePage, "Upgrade", 5, "helm upgrade", "helm upgrade --wait --timeout=3m --set logging.verbosity=2")
	w.logf("everything is upgraded")
	w.checkNewPods(t)
	w.checkStillRuns(t, running)

	w.logf("== the charts are uninstalled while the server is in use, and installed again, in namespaces with Pod Security restricted")
	w.run(t, `helm uninstall tenant-a --namespace tenant-a --wait; helm uninstall karpenter-metal3 --namespace karpenter-metal3 --wait
kubectl label namespaces karpenter-metal3 tenant-a pod-security.kubernetes.io/enforce=restricted`)
	w.follow(t, w.page, "1. The management cluster", 3)
	w.run(t, "helm install --wait --timeout=3m tenant-a charts/karpenter-metal3-tenant --namespace tenant-a")
	w.logf("the charts are installed again")
	w.checkNewPods(t)
	w.checkStillRuns(t, running)

	w.logf("== the charts are uninstalled")
	w.checkOursAreFound(t)
	w.follow(t, w.page, "Uninstalling", 4)
	w.untilServersFree(t)
	w.untilUninstalled(t)
	w.logf("both clusters have only the CRDs of the charts left, and what describes the servers")
	// Their objects can be deleted too: no finalizer waits for a program that was uninstalled.
	for _, kubeconfig := range []string{w.managementKubeconfig, w.tenantKubeconfig} {
		w.run(t, "export KUBECONFIG="+kubeconfig+`
kubectl get customresourcedefinitions -o name | grep 'karpenter\|autoscaling' | xargs kubectl delete --timeout=1m`)
	}
}

// checkChartPods fails if a pod of the namespace is not ready. It returns how often they were restarted.
func (w *fixture) checkChartPods(t *testing.T, namespace string, want map[string]int) (restarts int) {
	t.Helper()
	got := map[string]int{}
	for _, pod := range w.podsOf(t, namespace) {
		component := pod.Labels["app.kubernetes.io/component"]
		got[component]++
		for _, status := range pod.Status.ContainerStatuses {
			restarts += int(status.RestartCount)
			if !status.Ready {
				t.Errorf("pod %s is not ready", pod.Name)
			}
		}
	}
	for component, count := range want {
		if got[component] != count {
			t.Errorf("namespace %s has %d pods of the %s, want %d", namespace, got[component], component, count)
		}
	}
	return restarts
}

// checkNewPods fails if a pod of the charts is not ready, or was restarted. Those before may be, by tests of crashes.
func (w *fixture) checkNewPods(t *testing.T) {
	t.Helper()
	restarts := w.checkChartPods(t, releaseNamespace, map[string]int{"manager": 2, "webhook": 2})
	if restarts += w.checkChartPods(t, tenantNamespace, map[string]int{"provider": 1}); restarts > 0 {
		t.Errorf("the pods were restarted %d times, want never", restarts)
	}
}

func (w *fixture) podsOf(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	if err := w.management.List(t.Context(), pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	var live []corev1.Pod
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			live = append(live, pod)
		}
	}
	return live
}

// checkWebhookDenies creates a Machine that the webhook denies: the API server calls it through its Service, with the
// certificates that it made.
func (w *fixture) checkWebhookDenies(t *testing.T) {
	t.Helper()
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "wrong"}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "h100-8x"}
	const reason = "there is no TenantCluster in namespace default, and the namespace does not have the label"
	if err := w.management.Create(t.Context(), machine, client.DryRunAll); err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("a Machine in a namespace that may have none gives %v, want it denied", err)
	}
}

// applyFleet applies the objects that describe the servers, and waits until the tenant can use them.
func (w *fixture) applyFleet(t *testing.T) {
	t.Helper()
	for file, target := range map[string]client.Client{"management.yaml": w.management, "tenant.yaml": w.tenant} {
		path := w.fleet + "/" + file
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := examples.Parse(path, content)
		if err != nil {
			t.Fatal(err)
		}
		if err := examples.ApplyAll(t.Context(), target, objects); err != nil {
			t.Fatal(err)
		}
	}
}

// createPod creates a pod without a controller: it is not made again on another server.
func (w *fixture) createPod(t *testing.T) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: podName}}
	pod.Spec.Containers = []corev1.Container{{
		Name: "main", Image: w.podImage, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: resource.MustParse("1")}},
	}}
	if err := w.tenant.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// untilClaimed waits until the Machine has a server. Its installation takes much longer.
func (w *fixture) untilClaimed(t *testing.T) {
	t.Helper()
	w.until(t, "the Machine to have a server", func(ctx context.Context) error {
		machines := &v1alpha1.MachineList{}
		if err := w.management.List(ctx, machines, client.InNamespace(tenantNamespace)); err != nil {
			return err
		}
		for _, machine := range machines.Items {
			if meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionClaimed) {
				w.logf("Machine %s has server %s", machine.Name, machine.Status.HostRef.Name)
				return nil
			}
		}
		return fmt.Errorf("none of %d Machines has one", len(machines.Items))
	})
}

// leader returns the pod of the manager that holds the lease.
func (w *fixture) leader(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := w.management.Get(ctx, client.ObjectKey{Namespace: releaseNamespace, Name: managerLease}, lease); err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errors.New("the lease has no holder")
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return name, nil
}

// deleteLeader deletes the leading manager pod during an installation.
func (w *fixture) deleteLeader(t *testing.T) {
	t.Helper()
	name, err := w.leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: releaseNamespace, Name: name}}
	if err := w.management.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.logf("the leading manager pod %s is deleted", name)
	w.until(t, "another manager to lead", func(ctx context.Context) error {
		next, err := w.leader(ctx)
		if err == nil && next == name {
			err = fmt.Errorf("it is still %s", name)
		}
		return err
	})
}

// untilPodRuns returns the pod once a kubelet reports that it runs.
func (w *fixture) untilPodRuns(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	w.until(t, "pod "+podName+" to run", func(ctx context.Context) error {
		if err := w.tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: podName}, pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || len(pod.Status.ContainerStatuses) == 0 {
			return fmt.Errorf("it is %s %s", pod.Status.Phase, pod.Status.Message)
		}
		return nil
	})
	w.logf("pod %s runs on node %s", podName, pod.Spec.NodeName)
	return pod
}

// checkStillRuns fails if the pod does not run in the same container as before.
func (w *fixture) checkStillRuns(t *testing.T, before *corev1.Pod) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := w.tenant.Get(t.Context(), client.ObjectKeyFromObject(before), pod); err != nil {
		t.Fatal(err)
	}
	was, is := before.Status.ContainerStatuses[0].ContainerID, pod.Status.ContainerStatuses[0].ContainerID
	if pod.UID != before.UID || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil || is != was {
		t.Errorf("pod %s is %s in container %s, want that it keeps running in %s", podName, pod.Status.Phase, is, was)
	}
}

// untilServersFree waits until every server is cleaned and has no consumer.
func (w *fixture) untilServersFree(t *testing.T) {
	t.Helper()
	w.until(t, "every server to be available", func(ctx context.Context) error {
		hosts := &bmov1alpha1.BareMetalHostList{}
		if err := w.management.List(ctx, hosts); err != nil {
			return err
		}
		for _, host := range hosts.Items {
			if host.Spec.ConsumerRef != nil || host.Spec.Image != nil {
				return fmt.Errorf("server %s has a consumer or an image", host.Name)
			}
			if state := host.Status.Provisioning.State; state != bmov1alpha1.StateAvailable && host.Status.ErrorType == "" {
				return fmt.Errorf("server %s is %s", host.Name, state)
			}
		}
		return nil
	})
	w.logf("every server is available again")
}
