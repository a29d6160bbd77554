// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
)

// testHeartbeats runs the real kwok beside a server: its Node gets Ready and keeps its GPUs, and its heartbeats stop
// with the server's power.
func testHeartbeats(t *testing.T, c *testCluster) {
	kwok, err := c.binaries.Find("kwok")
	if err != nil {
		t.Skip(err)
	}
	// kwok renews a lease four times in its duration.
	const duration = "--node-lease-duration-seconds=1"
	stages := filepath.Join("..", "sandbox", "manifests", "kwok.yaml")
	home := t.TempDir()
	if err := c.supervisor.Start(process.Spec{
		Name: "kwok", Path: kwok, Rank: cluster.RankClients,
		Args: []string{"--kubeconfig=" + c.Kubeconfig, "--config=" + stages, "--manage-all-nodes=false",
			"--manage-nodes-with-label-selector=" + KwokLabelSelector, duration},
		Env: []string{"HOME=" + home, "KWOK_WORKDIR=" + home},
	}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.supervisor.Stop("kwok"); err != nil {
			t.Error(err)
		}
	}()

	const name = "server-2"
	join := c.joinOf(t, name)
	userData, err := bootstrap.JoinUserData(join)
	if err != nil {
		t.Fatal(err)
	}
	rack, stop := c.startRack(t, time.Minute, Server{Name: name, Capacity: resources("cpu", "16", "nvidia.com/gpu", "4")})
	defer stop()
	host := c.provision(t, name, userData)
	node := &corev1.Node{}
	eventually(t, "a Node that is Ready with its GPUs", func() bool {
		if err := c.Get(t.Context(), client.ObjectKey{Name: join.NodeName}, node); err != nil {
			return false
		}
		_, gpus := node.Status.Allocatable["nvidia.com/gpu"]
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return gpus && condition.Status == corev1.ConditionTrue
			}
		}
		return false
	})
	if diff := cmp.Diff(resources("cpu", "15", "nvidia.com/gpu", "4", "pods", "110", "ephemeral-storage", evicted),
		node.Status.Allocatable); diff != "" {
		t.Errorf("kwok changes what the server reports, -want +got:\n%s", diff)
	}

	lease := &coordinationv1.Lease{}
	leaseKey := client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: join.NodeName}
	eventually(t, "a lease", func() bool { return c.Get(t.Context(), leaseKey, lease) == nil })
	c.setOnline(t, host, false)
	eventually(t, "power-off", func() bool { return statusOf(rack, name).State == Off })
	eventually(t, "the lease not to be renewed for ten renewal intervals", func() bool {
		return c.Get(t.Context(), leaseKey, lease) == nil && clock.RealClock{}.Since(lease.Spec.RenewTime.Time) > 2500*time.Millisecond
	})
	c.setOnline(t, host, true)
	eventually(t, "the lease to be renewed again", func() bool {
		return c.Get(t.Context(), leaseKey, lease) == nil && clock.RealClock{}.Since(lease.Spec.RenewTime.Time) < time.Second
	})
}
