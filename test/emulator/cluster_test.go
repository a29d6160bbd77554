// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

const hostNamespace = "hosts"

// testCluster is a real control plane that nodes can join, with the CRD of BareMetalHosts: management cluster and
// tenant cluster in one.
type testCluster struct {
	client.Client
	rest     *rest.Config
	endpoint string
	caHashes []string
	// kubeconfig, binaries and supervisor are for programs that use the cluster.
	kubeconfig string
	binaries   controlplane.Binaries
	supervisor *process.Supervisor
}

// startCluster starts one, and skips the test where its programs or the CRDs have not been built.
func startCluster(t *testing.T) *testCluster {
	t.Helper()
	repository := filepath.Join("..", "..")
	crd := filepath.Join(repository, "bin", "crds", "metal3", "metal3.io_baremetalhosts.yaml")
	if _, err := os.Stat(crd); err != nil {
		t.Skipf("%v: run it with make test, which builds what it needs", err)
	}
	binaries := controlplane.Binaries{os.Getenv("KUBEBUILDER_ASSETS"), filepath.Join(repository, "bin")}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm"} {
		if _, err := binaries.Find(name); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	supervisor, err := process.NewSupervisor(process.Options{Dir: dir, OnExit: func(exit process.Exit) {
		lines, _ := process.LastLines(exit.LogFile, 5)
		t.Errorf("%s died: %s\n%s", exit.Name, exit.Reason, strings.Join(lines, "\n"))
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { supervisor.Close() })
	ports, err := controlplane.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	etcd, err := controlplane.StartEtcd(ctx, controlplane.EtcdConfig{
		Dir: filepath.Join(dir, "etcd"), Binaries: binaries, Supervisor: supervisor, Clock: clock.RealClock{},
		ClientPort: ports[0], PeerPort: ports[1],
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := controlplane.New(controlplane.Config{
		Name: "both", Dir: filepath.Join(dir, "both"), Kubeconfig: filepath.Join(dir, "kubeconfig"), Binaries: binaries,
		Supervisor: supervisor, Clock: clock.RealClock{}, Etcd: etcd, Port: ports[2], Nodes: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, start := range []func(context.Context) error{cluster.StartAPIServer, cluster.StartControllers, cluster.EnableJoin} {
		if err := start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := envtest.InstallCRDs(cluster.REST, envtest.CRDInstallOptions{Paths: []string{crd}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	c := connectTo(t, ctx, cluster)
	c.kubeconfig, c.binaries, c.supervisor = cluster.Kubeconfig, binaries, supervisor
	return c
}

func connectTo(t *testing.T, ctx context.Context, cluster *controlplane.Cluster) *testCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, metal3api.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(cluster.REST, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	hashes, err := bootstrap.CACertHashes(cluster.CertificateAuthority())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostNamespace}}); err != nil {
		t.Fatal(err)
	}
	return &testCluster{Client: c, rest: cluster.REST, endpoint: strings.TrimPrefix(cluster.Server, "https://"), caHashes: hashes}
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
