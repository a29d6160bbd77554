// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Two servers with eight GPUs are free, and eight pods want one GPU each. The tenant's scheduler fills one server; the
// other one stays empty and is given back.
func TestPackingFillsOneServer(t *testing.T) {
	w := enter(t, reference)
	w.needsSandbox(t)
	w.twoFreeServers(t)
	pods := w.eightPods(t)
	used := w.nodesOf(t, pods)
	if len(used) != 1 {
		t.Fatalf("eight one-GPU pods run on %d servers, want 1: %v", len(used), used)
	}
	w.consolidateAfter(t, "1s")
	w.eventually(t, "the empty server is back in the pool", func(ctx context.Context) (string, error) {
		if claimed := w.claimedHosts(ctx, t); len(claimed) != 1 {
			return fmt.Sprintf("%d servers are claimed: %v", len(claimed), claimed), nil
		}
		return "", nil
	})
	if still := w.nodesOf(t, pods); len(still) != 1 {
		t.Errorf("the pods were moved: they run on %v now, before on %v", still, used)
	}
}

// The same with the scheduler as it comes: half of each server is used, and neither ever becomes empty.
func TestPackingDisabledSpreads(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, reference)
	w.needsSandbox(t)
	w.schedulerAsItComes(t)
	w.twoFreeServers(t)
	used := w.nodesOf(t, w.eightPods(t))
	if len(used) != 2 {
		t.Errorf("eight one-GPU pods run on %d servers, want 2, or packing has nothing to improve: %v", len(used), used)
	}
}

// twoFreeServers has Karpenter get both servers of eight GPUs, and keeps them although nothing runs on them any more.
func (w *fixture) twoFreeServers(t *testing.T) {
	t.Helper()
	w.consolidateAfter(t, "Never")
	for _, name := range []string{"holder-1", "holder-2"} {
		w.createPod(t, name, resources("cpu", "4", gpu, "8"))
	}
	for _, name := range []string{"holder-1", "holder-2"} {
		w.eventually(t, "server of "+name+" is there", w.runs(name))
	}
	if err := w.deletePods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "both servers are free", func(ctx context.Context) (string, error) {
		pods := &corev1.PodList{}
		if err := w.tenant.List(ctx, pods, client.InNamespace(w.group.namespace)); err != nil || len(pods.Items) > 0 {
			return fmt.Sprintf("%d pods are left", len(pods.Items)), err
		}
		nodes := &corev1.NodeList{}
		err := w.tenant.List(ctx, nodes, client.MatchingLabels{karpv1.NodeInitializedLabelKey: "true", karpv1.NodePoolLabelKey: w.group.pools[0]})
		if len(nodes.Items) != 2 {
			return fmt.Sprintf("%d nodes are initialized, want 2", len(nodes.Items)), err
		}
		return "", err
	})
}

// eightPods want one GPU each.
func (w *fixture) eightPods(t *testing.T) []string {
	t.Helper()
	var names []string
	for n := range 8 {
		names = append(names, fmt.Sprintf("infer-%d", n))
		w.createPod(t, names[n], resources("cpu", "4", "memory", "16Gi", gpu, "1"))
	}
	for _, name := range names {
		w.eventually(t, name+" runs", w.runs(name))
	}
	return names
}

// nodesOf counts the pods on each node.
func (w *fixture) nodesOf(t *testing.T, pods []string) map[string]int {
	t.Helper()
	nodes := map[string]int{}
	for _, name := range pods {
		pod := &corev1.Pod{}
		if err := w.tenant.Get(t.Context(), client.ObjectKey{Namespace: w.group.namespace, Name: name}, pod); err != nil {
			t.Fatal(err)
		}
		nodes[pod.Spec.NodeName]++
	}
	return nodes
}

// consolidateAfter sets how long a node of the default pool stays empty before it is given back.
func (w *fixture) consolidateAfter(t *testing.T, after string) {
	t.Helper()
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	patch := fmt.Sprintf(`{"spec": {"disruption": {"consolidateAfter": %q}}}`, after)
	if err := w.tenant.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// schedulerAsItComes runs kube-scheduler without our configuration until the test ends.
func (w *fixture) schedulerAsItComes(t *testing.T) {
	t.Helper()
	const packing, plain = "tenant-kube-scheduler", "tenant-kube-scheduler-as-it-comes"
	path, err := binary("kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	processes := w.sandbox.box.Processes()
	if err := processes.Stop(packing); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := processes.Stop(plain); err != nil {
			t.Error(err)
		}
		if err := processes.StartAgain(packing); err != nil {
			t.Error(err)
		}
	})
	if err := processes.Start(process.Spec{Name: plain, Path: path, Args: []string{
		"--kubeconfig=" + filepath.Join(w.sandbox.dir, "tenant", "pki", "scheduler.kubeconfig"),
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
	}}); err != nil {
		t.Fatal(err)
	}
}
