// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	scheduling "github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/scheduler"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Two servers with eight GPUs are free, and eight pods want one GPU each. The tenant's scheduler fills one server; the
// other one stays empty and is given back.
func TestPackingFillsOneServer(t *testing.T) {
	w := enter(t, reference)
	scheduler := corev1.DefaultSchedulerName // the sandbox's is configured so
	if w.sandbox == nil {
		scheduler = w.startScheduler(t, "packing", scheduling.Packing)
	}
	w.twoFreeServers(t)
	pods := w.eightPods(t, scheduler)
	used := w.nodesOf(t, pods)
	if len(used) != 1 {
		t.Fatalf("eight one-GPU pods run on %d servers, want 1: %v", len(used), used)
	}
	w.consolidateAfter(t, "1s")
	w.eventually(t, "the empty one of two h100-8x servers is given back", func(ctx context.Context) (string, error) {
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
	w := enter(t, reference)
	scheduler := w.startScheduler(t, "as-it-comes", []byte(plainScheduler))
	w.twoFreeServers(t)
	used := w.nodesOf(t, w.eightPods(t, scheduler))
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
	w.untilRuns(t, "holder-1", "holder-2")
	if err := w.deletePods(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "both h100-8x servers are nodes without pods", func(ctx context.Context) (string, error) {
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

// eightPods want one GPU each, and are bound by the scheduler of that name.
func (w *fixture) eightPods(t *testing.T, scheduler string) []string {
	t.Helper()
	names := w.createPods(t, "infer", 8, resources("cpu", "4", "memory", "16Gi", gpu, "1"), func(pod *corev1.Pod) {
		pod.Spec.SchedulerName = scheduler
	})
	w.untilRuns(t, names...)
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

// startScheduler runs a kube-scheduler with that configuration beside the tenant's own, for the pods that name it, until the test ends.
func (w *fixture) startScheduler(t *testing.T, name string, configuration []byte) string {
	t.Helper()
	path, err := binary("kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(configuration, &config); err != nil {
		t.Fatal(err)
	}
	profiles, _ := config["profiles"].([]any)
	if profiles == nil {
		profiles = []any{map[string]any{}}
	}
	profiles[0].(map[string]any)["schedulerName"] = name
	config["profiles"] = profiles
	config["clientConnection"] = map[string]any{"kubeconfig": w.tenantKubeconfig}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	content, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	output := &bytes.Buffer{}
	command := exec.CommandContext(ctx, path, "--config="+file, "--secure-port=0")
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = command.Wait() // it was killed
		if t.Failed() {
			t.Logf("the scheduler %s says:\n%s", name, output)
		}
	})
	return name
}
