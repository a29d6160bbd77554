// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

const (
	// releaseNamespace is that of the chart in the management cluster, and of the tenant's in the tenant's cluster.
	releaseNamespace = "karpenter-metal3"
	managerLease     = "karpenter-metal3-manager"
)

// TestCharts follows docs/install.md on a management cluster with a node: the charts are installed with their defaults, from
// the archives of `make images`, do the main job, are upgraded, and are uninstalled.
func TestCharts(t *testing.T) {
	bin, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	requirePrerequisites(t, bin, missingForCharts)
	w := newFixture(t, setup{bin: bin, dir: t.TempDir(), rack: "charts-rack.yaml", charts: true})
	w.registerServers(t)
	w.startManagementNode(t)
	p := w.openPage(t)
	t.Cleanup(func() {
		if t.Failed() {
			w.diagnoseCharts(t, p)
		}
	})
	management, tenant := mustList(t, w.REST), mustList(t, w.tenant.REST)

	w.journal.logf("== the platform team installs the chart in the management cluster")
	p.follow(t, "1. The management cluster", 3)
	w.journal.logf("manager and webhook run on node %s", managementNode)
	w.checkChartPods(t, releaseNamespace, map[string]int{"manager": 2, "webhook": 2})
	w.checkConfined(t, "manager", "webhook")
	image, _ := w.serveImages(t, container)
	w.createFleet(t, image)
	w.checkWebhookRefuses(t, p)

	w.journal.logf("== the tenant's chart is installed, in its cluster and in the management cluster")
	p.follow(t, "2. The tenant cluster", 2)
	p.follow(t, "3. The tenant's provider", 4)
	w.checkChartPods(t, stack.MachinesNamespace, map[string]int{"provider": 1})
	w.checkConfined(t, "provider")
	stop := w.keepJournal(t)
	defer stop()
	w.untilFleetReady(t)
	if output := p.run(t, "kubectl get nodetypes"); !strings.Contains(output, nodeTypeName) {
		t.Errorf("kubectl get nodetypes says %q", output)
	}

	w.journal.logf("== the tenant creates a pod that requests a GPU; there is no node for it")
	w.createTenant(t)
	w.createPod(t, "train", "1")
	w.untilClaimed(t)
	w.deleteLeader(t)
	w.untilPodRuns(t, "train")
	w.checkPod(t, "train", 1, image)
	w.leftovers.noteLinks(t, w.network.Name)
	w.leftovers.checkSeen(t, 2)

	w.journal.logf("== the charts are upgraded; the pod keeps running")
	p.follow(t, "Upgrading", 1, "helm upgrade", "helm upgrade --wait --timeout=3m --set logging.verbosity=2")
	w.journal.logf("everything is upgraded")
	w.checkChartPods(t, releaseNamespace, map[string]int{"manager": 2, "webhook": 2})
	w.checkChartPods(t, stack.MachinesNamespace, map[string]int{"provider": 1})

	w.journal.logf("== the charts are uninstalled while the server is in use, and installed again")
	p.uninstallInUse(t)
	w.checkPod(t, "train", 1, image)
	w.journal.logf("the charts are installed again")

	w.journal.logf("== the charts are uninstalled")
	p.follow(t, "Uninstalling", 4)
	w.untilAllReleased(t)
	w.journal.logf("the server is available again")
	stop()
	w.untilUninstalled(t, w.REST, management, "NodeProvider "+providerName, "NodeType "+nodeTypeName, "OSImage "+imageName(0))
	w.untilUninstalled(t, w.tenant.REST, tenant)
	w.journal.logf("both clusters have only the CRDs of the charts left")
	// Their objects can be deleted too: no finalizer waits for a program that was uninstalled.
	for _, kubeconfig := range []string{w.Kubeconfig, w.tenant.Kubeconfig} {
		p.run(t, "export KUBECONFIG="+kubeconfig+`; kubectl get customresourcedefinitions -o name | grep 'karpenter\|autoscaling' | xargs `+
			`kubectl delete --timeout=1m`)
	}
}

// checkWebhookRefuses creates a Machine that the webhook denies: the API server calls its pods through the Service,
// with the certificates that they generated.
func (w *fixture) checkWebhookRefuses(t *testing.T, p *page) {
	t.Helper()
	output, err := p.try(t, `kubectl create -f - <<EOF
apiVersion: karpenter.metal3.io/v1alpha1
kind: Machine
metadata: {name: wrong, namespace: default}
spec:
  nodeTypeRef: {name: `+nodeTypeName+`}
EOF`)
	if err == nil || !strings.Contains(output, "there is no TenantCluster in namespace default, and the namespace does not have the label") {
		t.Errorf("a Machine in a namespace that may have none gives %q (%v), want it denied", output, err)
	}
	w.journal.logf("a Machine in a namespace that may have none is denied: %s", strings.TrimSpace(output))
}

// checkChartPods fails if a pod of the namespace is not ready, or was restarted.
func (w *fixture) checkChartPods(t *testing.T, namespace string, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for _, pod := range w.podsOf(t, namespace) {
		component := pod.Labels["app.kubernetes.io/component"]
		got[component]++
		for _, status := range pod.Status.ContainerStatuses {
			if !status.Ready || status.RestartCount > 0 {
				t.Errorf("pod %s is ready: %t, and was restarted %d times", pod.Name, status.Ready, status.RestartCount)
			}
		}
	}
	for component, count := range want {
		if got[component] != count {
			t.Errorf("namespace %s has %d pods of the %s, want %d", namespace, got[component], component, count)
		}
	}
}

func (w *fixture) podsOf(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	if err := w.Client.List(t.Context(), pods, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// untilClaimed waits until the Machine has a server. Its installation takes much longer.
func (w *fixture) untilClaimed(t *testing.T) {
	t.Helper()
	w.until(t, "the Machine to have a server", func(context.Context) error {
		for _, object := range w.journal.list() {
			machine, is := object.(*v1alpha1.Machine)
			if is && meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionClaimed) {
				return nil
			}
		}
		return errors.New("no Machine has one")
	})
}

// leader returns the pod of the manager that holds the lease.
func (w *fixture) leader(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: releaseNamespace, Name: managerLease}, lease); err != nil {
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
	if err := w.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: releaseNamespace, Name: name}}); err != nil {
		t.Fatal(err)
	}
	w.journal.logf("the leading manager pod %s is deleted", name)
	w.until(t, "another manager to lead", func(ctx context.Context) error {
		next, err := w.leader(ctx)
		if err == nil && next == name {
			err = fmt.Errorf("it is still %s", name)
		}
		return err
	})
}

// diagnoseCharts prints the state and the logs of the charts' pods.
func (w *fixture) diagnoseCharts(t *testing.T, p *page) {
	t.Helper()
	for _, command := range []string{
		"kubectl get nodes,pods,services,endpointslices -A -o wide", "kubectl get events -A",
		"kubectl get machines.karpenter.metal3.io,nodetypes,baremetalhosts -A -o wide",
		"for pod in $(kubectl get pods -A -o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}'); do echo \"== $pod\"; " +
			"kubectl -n ${pod%/*} logs --tail=30 ${pod#*/}; done",
	} {
		output, err := p.try(t, command)
		t.Logf("%s (%v):\n%s", command, err, output)
	}
}
