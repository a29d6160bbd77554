// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/examples"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/gangstories"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/page"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

var (
	root     = filepath.Join("..", "..")
	binaries = cluster.Binaries{filepath.Join(root, "bin")}
)

// fixture is a sandbox with Kueue in its tenant cluster, and the page that is followed there.
type fixture struct {
	box                *sandbox.Sandbox
	management, tenant client.Client
	dir, text          string
	page               *page.Page
}

// TestPage follows docs/kueue.md: a job waits while there is no node, and runs on two servers of one rack that a buffer brings. A second
// one runs in the other rack when a static pool has servers there. The third one waits until two servers of one rack are free, although
// two are free all the time. Then a job brings its servers itself, and a group of three pods waits until all of them have room.
func TestPage(t *testing.T) {
	system.Only(t)
	w := newFixture(t)

	w.follow(t, "A Topology and a queue")
	w.untilPending(t, "train-1")
	if claims := w.list(t, "karpenter.sh", "NodeClaimList"); len(claims) != 0 {
		t.Errorf("Karpenter has made NodeClaims %v for a job whose pods do not exist", claims)
	}

	w.follow(t, "Servers for a job that waits")
	first := w.untilRuns(t, "train-1")
	w.follow(t, "Servers that stay")
	second := w.untilRuns(t, "train-2")
	if second == first {
		t.Errorf("train-2 runs in %s, where train-1 has two of three servers", second)
	}

	w.follow(t, "More jobs than a rack has room for")
	w.untilPending(t, "train-3")
	w.finish(t, "train-1")
	if third := w.untilRuns(t, "train-3"); third != first {
		t.Errorf("train-3 runs in %s, and servers were given back in %s", third, first)
	}

	w.follow(t, "Servers that come for a job")
	if rack := w.untilRuns(t, "tune-1"); rack != "rack-b" {
		t.Errorf("tune-1 runs in %s, and only rack-b has two of its servers", rack)
	}
	if nodes := w.list(t, "", "NodeList"); len(nodes) != 8 {
		t.Errorf("nodes are %v, want six for training and two for tune-1", nodes)
	}

	w.follow(t, "Groups of pods")
	w.untilPending(t, "mpi-0")
	if claims := w.list(t, "karpenter.sh", "NodeClaimList"); len(claims) != 8 {
		t.Errorf("NodeClaims are %v, want none for a group that Kueue has not admitted", claims)
	}
	w.finish(t, "tune-1")
	poll.Eventually(t, "the group runs on three servers", func(ctx context.Context) error {
		nodes := map[string]bool{}
		for i := range 3 {
			pod := &corev1.Pod{}
			if err := w.tenant.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: fmt.Sprint("mpi-", i)}, pod); err != nil {
				return err
			}
			if pod.Status.Phase == corev1.PodRunning {
				nodes[pod.Spec.NodeName] = true
			}
		}
		if len(nodes) != 3 {
			return fmt.Errorf("it runs on %v", slices.Collect(maps.Keys(nodes)))
		}
		return nil
	})
	if claims := w.list(t, "karpenter.sh", "NodeClaimList"); len(claims) != 9 {
		t.Errorf("NodeClaims are %v, want one more", claims)
	}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	servers, err := fleet.Load(filepath.Join("testdata", "fleet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w := newSandbox(t, sandbox.Config{Fleet: servers, KwokConfigs: []string{filepath.Join("testdata", "kwok.yaml")}})
	class, err := examples.Objects(examples.TenantFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := examples.ApplyAll(t.Context(), w.tenant, class[:1]); err != nil {
		t.Fatal(err)
	}
	w.openPage(t)
	w.install(t, kueue)
	return w
}

// newSandbox starts a sandbox with the example's objects of the management cluster.
func newSandbox(t *testing.T, config sandbox.Config) *fixture {
	t.Helper()
	w := &fixture{dir: t.TempDir()}
	config.Dir = filepath.Join(w.dir, "sandbox")
	w.box, w.management, w.tenant = gangstories.Start(t, config)
	return w
}

// openPage writes the YAML of the page to the files that it names.
func (w *fixture) openPage(t *testing.T) {
	t.Helper()
	file := filepath.Join(root, "docs", "kueue.md")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w.text = string(content)
	bin, err := filepath.Abs(filepath.Join(root, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(w.dir, "page")
	w.page, err = page.Open(page.Config{File: file, Dir: dir, Bin: bin, Kubeconfig: w.box.Kubeconfigs().Tenant})
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range page.Blocks(w.text) {
		name, named := strings.CutPrefix(block.Lines[0], "# ")
		if !named {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(block.Text()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// follow runs the commands of a section of the page, which has one block of them.
func (w *fixture) follow(t *testing.T, section string) {
	t.Helper()
	output, err := w.page.Follow(t.Context(), section, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s:\n%s", section, output)
}

// untilPending waits until Kueue says of a job, or of a pod of a group, what the page says.
func (w *fixture) untilPending(t *testing.T, job string) {
	t.Helper()
	poll.Eventually(t, "Kueue says why "+job+" waits", func(ctx context.Context) error {
		message, err := w.pending(ctx, job)
		if err != nil {
			return err
		}
		if message == "" || !strings.Contains(w.text, "> "+message) {
			return fmt.Errorf("it says %q, which is not on the page", message)
		}
		return nil
	})
}

// pending returns why the workload of a job has no quota.
func (w *fixture) pending(ctx context.Context, job string) (string, error) {
	workloads := &unstructured.UnstructuredList{}
	workloads.SetGroupVersionKind(schema.GroupVersionKind{Group: "kueue.x-k8s.io", Version: "v1beta2", Kind: "WorkloadList"})
	if err := w.tenant.List(ctx, workloads, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return "", err
	}
	for _, workload := range workloads.Items {
		if !slices.ContainsFunc(workload.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.Name == job }) {
			continue
		}
		conditions, _, err := unstructured.NestedSlice(workload.Object, "status", "conditions")
		if err != nil {
			return "", err
		}
		for _, condition := range conditions {
			if condition := condition.(map[string]any); condition["type"] == "QuotaReserved" && condition["status"] == "False" {
				return condition["message"].(string), nil
			}
		}
	}
	return "", nil
}

// untilRuns waits until both pods of a job run, on servers of their own, and returns their rack.
func (w *fixture) untilRuns(t *testing.T, job string) string {
	t.Helper()
	racks := map[string]bool{}
	poll.Eventually(t, "both pods of "+job+" run", func(ctx context.Context) error {
		pods, err := w.pods(ctx, job)
		if err != nil {
			return err
		}
		nodes := map[string]bool{}
		for _, pod := range pods {
			if pod.Status.Phase == corev1.PodRunning {
				nodes[pod.Spec.NodeName] = true
			}
		}
		if len(nodes) != 2 {
			message, err := w.pending(ctx, job)
			return fmt.Errorf("%d pods run on %d nodes; Kueue says %q (%v)", len(pods), len(nodes), message, err)
		}
		for name := range nodes {
			node := &corev1.Node{}
			if err := w.tenant.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
				return err
			}
			racks[node.Labels["rack"]] = true
		}
		return nil
	})
	all := slices.Collect(maps.Keys(racks))
	if len(all) != 1 {
		t.Fatalf("%s runs in racks %v, want one", job, all)
	}
	t.Logf("%s runs in %s", job, all[0])
	return all[0]
}

func (w *fixture) pods(ctx context.Context, job string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := w.tenant.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{batchv1.JobNameLabel: job})
	return pods.Items, err
}

// finish has the pods of a job succeed.
func (w *fixture) finish(t *testing.T, job string) {
	t.Helper()
	pods, err := w.pods(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		running := pod.DeepCopy()
		pod.Status.Phase = corev1.PodSucceeded
		if err := w.tenant.Status().Patch(t.Context(), &pod, client.MergeFrom(running)); err != nil {
			t.Fatal(err)
		}
	}
}

// list returns the names of objects in the tenant cluster.
func (w *fixture) list(t *testing.T, group, kind string) []string {
	t.Helper()
	objects := &metav1.PartialObjectMetadataList{}
	objects.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	if err := w.tenant.List(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, object := range objects.Items {
		names = append(names, object.Name)
	}
	return names
}
