// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/docker"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/release/published"
)

// TestChartsFromRegistry installs a release from a registry alone, on the clusters that TestCharts has left without charts, by the commands
// of docs/install.md. A pod gets a server; the release is upgraded to the next one, and rolled back, while the pod runs.
func TestChartsFromRegistry(t *testing.T) {
	w := newFixture(t)
	registry, images := w.startRegistry(t)
	older, newer := registry.Publish(t, "0.1.0", "linux/amd64"), registry.Publish(t, "0.1.1", "linux/amd64")
	older.Images, newer.Images = images, images
	w.logf("two releases are in a registry")

	controlPlanes := &corev1.NodeList{}
	if err := w.tenant.List(t.Context(), controlPlanes, client.HasLabels{"node-role.kubernetes.io/control-plane"}); err != nil {
		t.Fatal(err)
	}
	endpoint := net.JoinHostPort(internalIPs(&controlPlanes.Items[0])[0], "6443")
	names := append(older.Charts(), tenantNamespace+".example.com:6443", endpoint)
	w.follow(t, w.page, "1. The management cluster", 3, names...)
	w.follow(t, w.page, "2. The tenant cluster", 2, names...)
	w.follow(t, w.page, "3. The tenant's provider", 4, names...)
	w.checkRelease(t, older)
	w.applyFleet(t)
	w.createPod(t)
	running := w.untilPodRuns(t)

	for _, step := range []struct {
		section, command string
		blocks           int
		release          published.Release
	}{{"Upgrade", "helm upgrade", 5, newer}, {"Roll back", "helm rollback", 3, older}} {
		w.follow(t, w.upgradePage, step.section, step.blocks, append(step.release.Charts(), step.command, step.command+" --wait --timeout=3m")...)
		w.logf("== %s: the charts are those of release %s", step.section, step.release.Version)
		w.checkRelease(t, step.release)
		w.checkStillRuns(t, running)
		w.checkNoDrift(t)
	}
}

// startRegistry starts an empty registry on the node of the management cluster. It returns its address, and where the node pulls images
// from: containerd speaks without TLS to its own loopback alone, if it is not told otherwise.
func (w *fixture) startRegistry(t *testing.T) (registry published.Registry, images string) {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := w.management.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	node := &nodes.Items[0]
	// kind names nodes like the containers that they are.
	if _, err := docker.Run(t.Context(), "cp", published.Program(t), node.Name+":/usr/local/bin/release"); err != nil {
		t.Fatal(err)
	}
	listening := published.Serve(t, exec.Command("docker", "exec", "--interactive", node.Name, "release", "registry", "0.0.0.0:0"))
	_, port, err := net.SplitHostPort(string(listening))
	if err != nil {
		t.Fatal(err)
	}
	return published.Registry(net.JoinHostPort(internalIPs(node)[0], port)), net.JoinHostPort("127.0.0.1", port) + "/metal"
}

// checkRelease fails if a pod of the charts is not ready, was restarted, or has another image than the release.
func (w *fixture) checkRelease(t *testing.T, release published.Release) {
	t.Helper()
	w.checkNewPods(t)
	for _, pod := range slices.Concat(w.podsOf(t, releaseNamespace), w.podsOf(t, tenantNamespace)) {
		program := pod.Labels["app.kubernetes.io/component"]
		want := release.Registry.Digest(t, "metal/"+program, "v"+release.Version)
		for _, status := range pod.Status.ContainerStatuses {
			if pod.Spec.Containers[0].Image != release.Image(program) || !strings.HasSuffix(status.ImageID, "@"+want) {
				t.Errorf("pod %s runs %s, which is %s, want %s of release %s", pod.Name, pod.Spec.Containers[0].Image, status.ImageID, want,
					release.Version)
			}
		}
	}
}

// checkNoDrift fails if a node of the tenant is to be replaced.
func (w *fixture) checkNoDrift(t *testing.T) {
	t.Helper()
	claims := &karpv1.NodeClaimList{}
	if err := w.tenant.List(t.Context(), claims); err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims.Items {
		if claim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue() || claim.DeletionTimestamp != nil {
			t.Errorf("NodeClaim %s has drifted or goes away: %v", claim.Name, claim.Status.Conditions)
		}
	}
}
