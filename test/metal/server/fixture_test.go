// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

const (
	serverUUID = "6e1f0d6a-4b1e-4a51-9b0a-3c1d5f6a7b80"
	serverMAC  = "52:54:00:6e:1f:0d"
	nodeName   = "gpu-server-1"
	providerID = "metal3://metal3-system/server-1/machine-1"
	// image stands for what a deployment writes to the disk, and imageSum is the start of its SHA-256.
	image    = "image 1"
	imageSum = "bdd295acb985"
)

// fixture is a network, a server that can be booted, and, once it was started, a control plane for it to join.
type fixture struct {
	bin     string
	network *network.Bridge
	cluster *controlplane.Cluster
	client  client.WithWatch
	kube    kubernetes.Interface
	dir     string
	// pods and services are networks of the cluster, as package controlplane has them; empty for its own.
	pods, services string
	// document is the user's part of the user data, and network the network data; empty for an example, and for one address.
	document    string
	networkData []byte
}

// newFixture makes the network. It skips the test if it is not enabled.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	// Depends on the process ID, so that two runs can share a machine.
	return newFixtureAt(t, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 213, byte(os.Getpid()), 1}), 24))
}

// newFixtureAt is the same for a network in which this machine has the address.
func newFixtureAt(t *testing.T, address netip.Prefix) *fixture {
	t.Helper()
	if os.Getenv("E2E_METAL") != "1" {
		t.Skip("servers that boot need root and the output of `make server-image`: run `make server-boot`")
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{bin: bin, dir: t.TempDir()}
	if w.network, err = network.New(fmt.Sprintf("servers%d", os.Getpid()), address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.network.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// startCluster starts a control plane on the machine's address of the network.
func (w *fixture) startCluster(ctx context.Context, t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	binaries := controlplane.Binaries{w.bin}
	supervisor, err := process.NewSupervisor(process.Options{Dir: dir, OnExit: func(exit process.Exit) {
		lines, _ := process.LastLines(exit.LogFile, 5)
		t.Errorf("%s died: %s\n%s", exit.Name, exit.Reason, strings.Join(lines, "\n"))
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(supervisor.Close)
	ports, err := controlplane.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := controlplane.StartEtcd(ctx, controlplane.EtcdConfig{
		Dir: filepath.Join(dir, "etcd"), Binaries: binaries, Supervisor: supervisor, Clock: clock.RealClock{},
		ClientPort: ports[0], PeerPort: ports[1],
	})
	if err != nil {
		t.Fatal(err)
	}
	w.cluster, err = controlplane.New(controlplane.Config{
		Name: "tenant", Dir: filepath.Join(dir, "tenant"), Kubeconfig: filepath.Join(dir, "tenant.kubeconfig"), Binaries: binaries,
		Supervisor: supervisor, Clock: clock.RealClock{}, Etcd: etcd,
		Address: w.network.Address.Addr().String(), Port: ports[2], Nodes: true,
		PodCIDR: w.pods, ServiceCIDR: w.services,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, start := range []func(context.Context) error{w.cluster.StartAPIServer, w.cluster.StartControllers, w.cluster.EnableJoin} {
		if err := start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if w.client, err = client.NewWithWatch(w.cluster.REST, client.Options{}); err != nil {
		t.Fatal(err)
	}
	if w.kube, err = kubernetes.NewForConfig(w.cluster.REST); err != nil {
		t.Fatal(err)
	}
}

// userData makes a join token, and renders the user data of a Machine that joins by kubeadm with it.
func (w *fixture) userData(ctx context.Context, t *testing.T) []byte {
	t.Helper()
	return w.userDataOf(ctx, t, v1alpha1.JoinKubeadm, strings.TrimPrefix(w.cluster.Server, "https://"))
}

// userDataOf is the same for a mode of joining, and an endpoint of the tenant cluster.
func (w *fixture) userDataOf(ctx context.Context, t *testing.T, mode v1alpha1.JoinMode, endpoint string) []byte {
	t.Helper()
	realClock := clock.RealClock{}
	machine := v1alpha1.MachineReference{Namespace: "tenant", Name: "machine-1", UID: "0c5f3f0e-0000-4000-8000-000000000001"}
	token, err := bootstrap.EnsureToken(ctx, w.client, machine, mode, realClock.Now().Add(time.Hour), realClock)
	if err != nil {
		t.Fatal(err)
	}
	hashes, err := bootstrap.CACertHashes(w.cluster.CertificateAuthority())
	if err != nil {
		t.Fatal(err)
	}
	join, err := bootstrap.JoinUserData(bootstrap.Join{
		NodeName: nodeName, ProviderID: providerID, Mode: mode, APIServerEndpoint: endpoint,
		CACertHashes: hashes, CACertificates: w.cluster.CertificateAuthority(), Token: token, Labels: map[string]string{"rack": "r1"},
		Taints: []corev1.Taint{{Key: "example.com/new", Effect: corev1.TaintEffectNoSchedule}},
	})
	if err != nil {
		t.Fatal(err)
	}
	user := cmp.Or(w.document, "#cloud-config\nwrite_files:\n- path: /etc/asset-tag\n  content: A-1\n")
	document, err := bootstrap.UserData([]byte(user), nil, nil, join)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// install writes the files of a deployment to the directory of a server: an image, and the config drive.
func (w *fixture) install(t *testing.T, userData []byte) {
	t.Helper()
	network := w.networkData
	if network == nil {
		var err error
		network, err = bootstrap.NetworkData(bootstrap.NetworkConfig{
			Address: w.network.Server(9), Gateway: w.network.Address.Addr(), MAC: serverMAC,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	server := boot.Server{Name: "server-1", UUID: serverUUID, Dir: w.dir, Image: filepath.Join(w.bin, "server-image")}
	if err := server.WriteConfigDrive(network, userData); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"image": image, "devices.json": `{"nvidia.com/gpu": ["GPU-0", "GPU-1"]}`,
		"hardware.json": `{"cpus": 96, "memoryMiB": 786432}`} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// power is a server that was turned on.
type power struct {
	command *exec.Cmd
	ended   chan error
}

// turnOn boots the server as a rack does: by the boot command, in a process group of its own.
func (w *fixture) turnOn(t *testing.T, program string) *power {
	t.Helper()
	command := exec.Command(program, "--image", filepath.Join(w.bin, "server-image"), "--bridge", w.network.Name)
	command.Env = append(os.Environ(), "SERVER_NAME=server-1", "SERVER_UUID="+serverUUID, "SERVER_MAC="+serverMAC, "SERVER_DIR="+w.dir)
	console, err := os.OpenFile(filepath.Join(w.dir, "console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = console, console
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p := &power{command: command, ended: make(chan error, 1)}
	go func() {
		p.ended <- command.Wait()
		close(p.ended)
		_ = console.Close()
	}()
	t.Cleanup(func() { _ = p.signal(syscall.SIGKILL) })
	return p
}

func (p *power) signal(signal syscall.Signal) error {
	return syscall.Kill(-p.command.Process.Pid, signal)
}

// diagnose prints the console and the journal of a server.
func (w *fixture) diagnose(t *testing.T) {
	t.Helper()
	for _, name := range []string{"console.log", "disk/upper/var/log/cloud-init-output.log"} {
		lines, err := process.LastLines(filepath.Join(w.dir, name), 30)
		t.Logf("%s (%v):\n%s", name, err, strings.Join(lines, "\n"))
	}
}
