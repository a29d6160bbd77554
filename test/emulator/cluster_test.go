// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const hostNamespace = "hosts"

// testCluster is a real control plane that nodes can join, with the CRD of BareMetalHosts: management cluster and
// tenant cluster in one.
type testCluster struct {
	client.Client
	*cluster.Cluster
	// binaries and supervisor are for programs that use the cluster.
	binaries   cluster.Binaries
	supervisor *process.Supervisor
}

// startCluster starts one, and skips the test where its programs or the CRDs have not been built.
func startCluster(t *testing.T) *testCluster {
	t.Helper()
	binaries := cluster.Binaries{os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join("..", "..", "bin")}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm"} {
		if _, err := binaries.Find(name); err != nil {
			t.Skip(err)
		}
	}
	if _, err := binaries.Metal3CRDs(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := poll.WithPatience(t.Context())
	defer cancel()
	dir := t.TempDir()
	c := &testCluster{binaries: binaries, supervisor: process.ForTest(t, dir)}
	var err error
	c.Cluster, err = cluster.Start(ctx, cluster.Options{
		Name: "both", Dir: dir, Binaries: binaries, Processes: c.supervisor, Nodes: true,
		Prepare: func(ctx context.Context, c client.Client) error {
			return cluster.PrepareMetal3(ctx, c, binaries, hostNamespace)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Client = c.Cluster.Client
	return c
}

// provision makes a host that Metal3 has installed an image on, with the user data on its config drive.
func (c *testCluster) provision(t *testing.T, name string, userData []byte) *metal3api.BareMetalHost {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: hostNamespace, Name: name},
		Data:       map[string][]byte{userDataKey: userData},
	}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	host := &metal3api.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: hostNamespace, Name: name},
		Spec: metal3api.BareMetalHostSpec{
			Online:   true,
			UserData: &corev1.SecretReference{Name: secret.Name, Namespace: secret.Namespace},
		},
	}
	if err := c.Create(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	c.setState(t, host, metal3api.StateProvisioned)
	return host
}

// setState writes the status as Metal3 does.
func (c *testCluster) setState(t *testing.T, host *metal3api.BareMetalHost, state metal3api.ProvisioningState) {
	t.Helper()
	host.Status.Provisioning.State = state
	host.Status.OperationalStatus = metal3api.OperationalStatusOK
	host.Status.ErrorType, host.Status.PoweredOn = "", host.Spec.Online
	if err := c.Status().Update(t.Context(), host); err != nil {
		t.Fatal(err)
	}
}

// setOnline requests power on or off from Metal3.
func (c *testCluster) setOnline(t *testing.T, host *metal3api.BareMetalHost, online bool) {
	t.Helper()
	host.Spec.Online = online
	status := host.Status.DeepCopy()
	if err := c.Update(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	c.setState(t, host, status.Provisioning.State)
}

// managedByKwok returns whether kwok renews the Node's heartbeats.
func (c *testCluster) managedByKwok(t *testing.T, key client.ObjectKey) bool {
	t.Helper()
	node := &corev1.Node{}
	if err := c.Get(t.Context(), key, node); err != nil {
		t.Fatal(err)
	}
	return node.Labels[KwokNodeKey] != "" || node.Annotations[KwokNodeKey] != ""
}
