// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

const (
	// managementNode is the node of the management cluster. Metal3 does not manage it.
	managementNode = "management-1"
	managementMAC  = "52:54:00:00:00:c9"
	// managementAddressIndex is the index of its address. No Machine gets that address.
	managementAddressIndex = 201
	// importedFrom is where a server mounts the directory with the container images that it imports.
	importedFrom = "/mnt/container-images"
	// proxyConfig is the path of kube-proxy's kubeconfig on the node.
	proxyConfig = "/etc/kubernetes/kube-proxy.conf"
)

// proxyUnit runs kube-proxy as a systemd unit, because an image of it would need iptables too. The flags leave the
// machine's connection tracking limits unchanged.
const proxyUnit = `[Unit]
Description=kube-proxy
After=containerd.service

[Service]
ExecStart=` + importedFrom + `/kube-proxy --kubeconfig=` + proxyConfig + ` --hostname-override=` + managementNode + ` --cluster-cidr=@PODS@ --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
Restart=always
RestartSec=1
`

// podNetwork is the pod network of the management cluster. It depends on the process ID, so that two runs can share a
// machine.
func (w *fixture) podNetwork() netip.Prefix {
	bytes := w.network.Address.Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{bytes[0], bytes[1] + 1, bytes[2], 0}), 24)
}

// startManagementNode boots a server that joins the management cluster, with the archives of `make images` to import, and
// returns when pods can run there. It is turned off when the test ends.
func (w *fixture) startManagementNode(t *testing.T) {
	t.Helper()
	dir, id := filepath.Join(w.dir, managementNode), uuid.NewString()
	w.leftovers.marks = append(w.leftovers.marks, id)
	w.leftovers.routes = append(w.leftovers.routes, w.podNetwork())
	images := filepath.Join(dir, "images")
	for _, file := range append(imageArchives(w.bin), filepath.Join(w.bin, "kube-proxy")) {
		copyFile(t, file, filepath.Join(images, filepath.Base(file)))
	}
	w.writeConfigDrive(t, boot.Server{Name: managementNode, UUID: id, Dir: dir, Image: filepath.Join(w.bin, "server-image")})
	command := exec.Command(filepath.Join(w.bin, container),
		"--image", filepath.Join(w.bin, "server-image"), "--bridge", w.network.Name, "--container-images", images)
	command.Env = append(os.Environ(), "SERVER_NAME="+managementNode, "SERVER_UUID="+id, "SERVER_MAC="+managementMAC, "SERVER_DIR="+dir)
	console, err := os.Create(filepath.Join(dir, "console.log"))
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = console, console
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM) // Wait returns the error if it has ended by itself
		if err := errors.Join(command.Wait(), console.Close()); err != nil {
			t.Errorf("node %s has ended badly: %v", managementNode, err)
		}
	})
	w.until(t, "node "+managementNode+" to be ready", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: managementNode}, node); err != nil {
			return err
		}
		if node.Spec.PodCIDR != w.podNetwork().String() {
			return errors.New("its pods have addresses of " + node.Spec.PodCIDR)
		}
		return nodeIsReady(node)
	})
	if err := w.network.Route(w.podNetwork(), w.network.Server(managementAddressIndex).Addr()); err != nil {
		t.Fatal(err)
	}
	w.leftovers.noteLinks(t, w.network.Name)
	w.journal.logf("node %s of the management cluster is ready", managementNode)
}

// imageArchives copies the archives of `make images` to a directory for the node.
func imageArchives(bin string) []string {
	var archives []string
	for _, program := range []string{"manager", "provider", "webhook"} {
		archives = append(archives, filepath.Join(bin, "images", program+".tar"))
	}
	return archives
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }() // it was only read
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(target, source)
	if err := errors.Join(err, target.Close()); err != nil {
		t.Fatal(err)
	}
}

// writeConfigDrive writes the node's config drive: its identity, its network and how it joins.
func (w *fixture) writeConfigDrive(t *testing.T, server boot.Server) {
	t.Helper()
	networkData, err := bootstrap.NetworkData(bootstrap.NetworkConfig{
		Address: w.network.Server(managementAddressIndex), Gateway: w.network.Address.Addr(), MAC: managementMAC,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.WriteConfigDrive(networkData, w.nodeUserData(t)); err != nil {
		t.Fatal(err)
	}
}

// nodeUserData joins the server by kubeadm, and has kube-proxy run on it, which makes Services work.
func (w *fixture) nodeUserData(t *testing.T) []byte {
	t.Helper()
	realClock := clock.RealClock{}
	// It gives the join token its name. No such Machine exists.
	machine := v1alpha1.MachineReference{Namespace: stack.MachinesNamespace, Name: managementNode, UID: "0c5f3f0e-0000-4000-8000-000000000002"}
	token, err := bootstrap.EnsureToken(t.Context(), w.Client, machine, v1alpha1.JoinKubeadm, realClock.Now().Add(time.Hour), realClock)
	if err != nil {
		t.Fatal(err)
	}
	hashes, err := bootstrap.CACertHashes(w.CertificateAuthority())
	if err != nil {
		t.Fatal(err)
	}
	join, err := bootstrap.JoinUserData(bootstrap.Join{
		NodeName: managementNode, ProviderID: "none://" + managementNode,
		APIServerEndpoint: strings.TrimPrefix(w.REST.Host, "https://"), CACertHashes: hashes, Token: token,
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.dir, "kube-proxy.kubeconfig")
	// Kubernetes binds the rights of a proxy to this user.
	if err := w.WriteKubeconfig(path, "system:kube-proxy"); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file := func(path, content string) map[string]string {
		return map[string]string{"path": path, "permissions": "0600", "content": content}
	}
	proxy, err := yaml.Marshal(map[string]any{
		"write_files": []any{
			file("/etc/systemd/system/kube-proxy.service", strings.Replace(proxyUnit, "@PODS@", w.podNetwork().String(), 1)),
			file(proxyConfig, string(kubeconfig)),
		},
		"runcmd": []any{[]string{"systemctl", "start", "kube-proxy"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	document, err := bootstrap.UserData(append([]byte("#cloud-config\n"), proxy...), nil, nil, join)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// missingForCharts returns what an installation by the charts needs and is missing.
func missingForCharts(bin string) error {
	var errs []error
	for program, remedy := range map[string]string{"helm": "make tools", "kubectl": "make tools", "kube-proxy": "make server-image"} {
		if _, err := (controlplane.Binaries{bin}).Find(program); err != nil {
			errs = append(errs, errors.New("bin/"+program+" is missing: run `"+remedy+"`"))
		}
	}
	for _, archive := range imageArchives(bin) {
		if _, err := os.Stat(archive); err != nil {
			errs = append(errs, errors.New(archive+" is missing: run `make images`"))
		}
	}
	return errors.Join(errs...)
}
