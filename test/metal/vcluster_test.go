// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/rbac"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/vcluster"
)

const (
	vclusterName = "vcluster"
	// vclusterPort cannot be changed. Others of vCluster's ports cannot either, so each has a network namespace of its own.
	vclusterPort = 8443
	// providerAccount is the service account of a tenant's provider, in either cluster.
	providerAccount = "karpenter-metal3-provider"
)

// A tenant is a vCluster, and its provider.
type tenant struct {
	*hostFixture
	// name of the vCluster, of its namespace on the host, and of its TenantCluster.
	name string
	// client is the tenant administrator's, as well as kube.
	client client.Client
	kube   kubernetes.Interface
	rest   *rest.Config
	// kubeconfig is the tenant administrator's.
	kubeconfig []byte
	// server is the URL of the vCluster's API server.
	server string
}

// startTenant starts a vCluster with its own control plane, at the n-th address of the network. Its chart gets the values of files.
func (w *hostFixture) startTenant(t *testing.T, name string, n int, values ...string) *tenant {
	t.Helper()
	v := &tenant{hostFixture: w, name: name}
	address := w.network.Server(n)
	v.server = fmt.Sprintf("https://%s:%d", address.Addr(), vclusterPort)
	link := fmt.Sprintf("v%d-%d", n, os.Getpid())
	w.links = append(w.links, link)
	namespace, err := w.network.Namespace(link, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespace.Close(); err != nil {
			t.Error(err)
		}
	})
	root := filepath.Join(w.dir, name)
	etcd := w.startEtcd(t, "etcd-"+name)
	for file, from := range map[string]string{"ca.crt": etcd.CAFile, "client.crt": etcd.CertFile, "client.key": etcd.CertKey} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(root, "host", file), content, 0o600)
	}
	writeFile(t, filepath.Join(root, "var/lib/vcluster/config.yaml"), w.installVCluster(t, name, address.Addr(), etcd.URL, values), 0o600)
	host := w.tokenKubeconfig(t, w.Client, w.Cluster.Server, w.CertificateAuthority(), name, "vc-"+name)
	writeFile(t, filepath.Join(root, "host/kubeconfig"), host, 0o600)
	w.startVCluster(t, name, root, namespace.Path(), address.Addr())
	return v
}

// installVCluster creates what vCluster's chart has on the host, and returns its configuration file.
func (w *hostFixture) installVCluster(t *testing.T, name string, address netip.Addr, etcd string, values []string) []byte {
	t.Helper()
	config, err := vcluster.Install(t.Context(), filepath.Dir(bin), filepath.Join(bin, "helm"), w.Client, name, map[string]any{
		"controlPlane": map[string]any{
			"distro":       map[string]any{"k8s": map[string]any{"enabled": true}},
			"backingStore": vcluster.ExternalEtcd(etcd[len("https://"):], "/host/ca.crt", "/host/client.crt", "/host/client.key"),
			"coredns":      vcluster.Off,
			"proxy":        map[string]any{"extraSANs": []any{address.String()}},
		},
		"exportKubeConfig": map[string]any{"server": fmt.Sprintf("https://%s:%d", address, vclusterPort)},
	}, values...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// enter gives the process of a vCluster the mounts that its container would have, and then its root directory.
const enter = `mount -t proc proc "$1/proc" && mount --bind -o ro "$2" "$1/binaries" && exec chroot "$1" /binaries/vcluster start`

// startVCluster starts it as a process with file system, process and network namespaces of its own.
func (w *hostFixture) startVCluster(t *testing.T, name, root, namespace string, address netip.Addr) {
	t.Helper()
	for _, dir := range []string{"proc", "binaries", "data", "tmp", "etc", "pki", "usr/local/bin", ".cache", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(root, "etc/hosts"), []byte("127.0.0.1 localhost\n"), 0o600)
	writeFile(t, filepath.Join(root, "etc/resolv.conf"), nil, 0o600)
	for file, device := range map[string]string{"null": "3", "urandom": "9", "random": "8"} {
		if output, err := exec.Command("mknod", "-m", "666", filepath.Join(root, "dev", file), "c", "1", device).CombinedOutput(); err != nil {
			t.Fatalf("making device %s, %v: %s", file, err, output)
		}
	}
	path, err := exec.LookPath("nsenter")
	if err != nil {
		t.Fatal(err)
	}
	err = w.supervisor.Start(process.Spec{
		Name: "vcluster-" + name, Path: path, Rank: cluster.RankClients,
		// It ignores SIGTERM until its child has ended, and ends its child when it is killed.
		Grace: time.Second,
		Args: []string{"--net=" + namespace, "unshare", "--pid", "--fork", "--kill-child", "--mount", "--propagation", "private",
			"sh", "-ec", enter, "sh", root, bin},
		Env: append(vcluster.Environment(name, "/host/kubeconfig", "/", address.String()), "TMPDIR=/tmp"),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// untilReady waits until the tenant's administrator has access, and prepares what every tenant has.
func (v *tenant) untilReady(t *testing.T) {
	t.Helper()
	v.until(t, "vCluster "+v.name+" to write its kubeconfig", func(ctx context.Context) (err error) {
		secret := &corev1.Secret{}
		if err := v.Client.Get(ctx, client.ObjectKey{Namespace: v.name, Name: "vc-" + v.name}, secret); err != nil {
			return err
		}
		v.kubeconfig = secret.Data["config"]
		v.rest, err = clientcmd.RESTConfigFromKubeConfig(v.kubeconfig)
		return err
	})
	v.rest.WarningHandler, v.rest.QPS = rest.NoWarnings{}, -1
	var err error
	if v.kube, err = kubernetes.NewForConfig(v.rest); err != nil {
		t.Fatal(err)
	}
	v.until(t, "vCluster "+v.name+" to serve", func(ctx context.Context) error {
		connected, err := client.NewWithWatch(v.rest, client.Options{Scheme: env.Scheme()})
		if err != nil {
			return err
		}
		v.client = cluster.RecreatingEvicted(connected)
		return v.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}, &corev1.ServiceAccount{})
	})
	v.showEvents(t, v.name, v.client)
	if err := vcluster.CreateDNS(t.Context(), v.client); err != nil {
		t.Fatal(err)
	}
	version, err := v.kube.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	v.logf("vCluster %s serves Kubernetes %s at %s", v.name, version.GitVersion, v.server)
}

// startProvider starts the tenant's provider with only the sync of Dynamic Resource Allocation, and only its rights in
// config/rbac.
func (v *tenant) startProvider(t *testing.T) {
	t.Helper()
	onHost, inTenant := filepath.Join(v.dir, v.name+"-host.kubeconfig"), filepath.Join(v.dir, v.name+"-tenant.kubeconfig")
	v.grant(t, v.Client, "provider-dra-management.yaml", v.name)
	writeFile(t, onHost, v.tokenKubeconfig(t, v.Client, v.Cluster.Server, v.CertificateAuthority(), v.name, providerAccount), 0o600)
	v.grant(t, v.client, "provider-dra-tenant.yaml", metav1.NamespaceSystem)
	writeFile(t, inTenant, v.tokenKubeconfig(t, v.client, v.server, v.rest.CAData, metav1.NamespaceSystem, providerAccount), 0o600)
	v.startOurs(t, "provider-"+v.name, "provider", "--controllers=dra", "--management-kubeconfig="+onHost, "--tenant-kubeconfig="+inTenant,
		"--namespace="+v.name, "--tenant-cluster="+v.name, "--leader-elect=false", "--metrics-bind-address=0")
}

// grant gives a service account of the provider, which it makes, the rights in a file of config/rbac, and returns once the API server
// authorizes by them.
func (v *tenant) grant(t *testing.T, c client.Client, file, namespace string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: providerAccount}}
	if err := c.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	rights, err := rbac.Read(rbac.Files, file, v.name)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range rights {
		if _, is := object.Object["subjects"]; is {
			object.Object["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "namespace": namespace, "name": providerAccount}}
		}
		// The host has the roles for all tenants already when the second tenant comes.
		if err := c.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("granting the rights in %s, %v", file, err)
		}
		if err := env.AwaitRights(v.ctx, c, object); err != nil {
			t.Fatal(err)
		}
	}
}

// tokenKubeconfig returns a kubeconfig file with a token of a service account.
func (w *hostFixture) tokenKubeconfig(t *testing.T, c client.Client, server string, authority []byte, namespace, account string) []byte {
	t.Helper()
	content, err := vcluster.TokenKubeconfig(t.Context(), c, server, authority, namespace, account)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
