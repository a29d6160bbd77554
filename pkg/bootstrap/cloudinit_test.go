// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cloudInit runs Debian's cloud-init.
func cloudInit(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := filepath.Abs(filepath.Join("..", "..", "bin", "cloud-init", "cloud-init"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("there is no %s: run `make cloud-init`, which unpacks Debian's cloud-init there (as make test does)", program)
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(out), err
}

// converted lets cloud-init make netplan's configuration of network data, as a server does at boot.
func converted(t *testing.T, document []byte, macs ...string) string {
	t.Helper()
	return convertedTo(t, "debian", "netplan", "etc/netplan/50-cloud-init.yaml", document, macs...)
}

// convertedTo lets cloud-init make a file of the network's configuration as a distribution has it.
func convertedTo(t *testing.T, distribution, kind, name string, document []byte, macs ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"devel", "net-convert", "--network-data", file(t, "network_data.json", document), "--kind", "network_data.json",
		"--directory", dir, "--distro", distribution, "--output-kind", kind}
	for _, mac := range macs {
		args = append(args, "--mac", mac)
	}
	out, err := cloudInit(t, args...)
	if err != nil {
		t.Fatalf("cloud-init does not take this (%v):\n%s\n%s", err, out, document)
	}
	written, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatalf("cloud-init has written no %s: %v\n%s", name, err, out)
	}
	return string(written)
}

// nodePrograms are those of an image that can join by kubeadm.
var nodePrograms = []string{"systemctl", "modprobe", "sysctl", "swapoff", "containerd", "kubelet", "kubeadm", "apt-get", "curl", "sleep"}

// booted is a server after its first boot.
type booted struct {
	*image
	// Config is the cloud-config that cloud-init has merged, Warnings what it has logged.
	Config   map[string]any
	Warnings []string
	// runs are the programs that the scripts have run.
	runs []string
}

// boot has Debian's cloud-init read user data and run its scripts, on an image that can join by kubeadm.
func boot(t *testing.T, userData []byte) booted {
	t.Helper()
	return bootAll(t, toBoot{newNode(t), userData})[0]
}

// newNode returns an image that can join by kubeadm.
func newNode(t *testing.T) *image {
	image := newImage(t, nodePrograms...)
	image.prepared()
	return image
}

// toBoot is a server before its first boot.
type toBoot struct {
	image    *image
	userData []byte
}

// bootAll boots several servers in one process, because cloud-init takes long to start.
func bootAll(t *testing.T, servers ...toBoot) []booted {
	t.Helper()
	packages, err := filepath.Abs(filepath.Join("..", "..", "bin", "cloud-init", "root", "usr", "lib", "python3", "dist-packages"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(packages); err != nil {
		t.Fatalf("there is no %s: run `make cloud-init` (as make test does)", packages)
	}
	var input []map[string]any
	for _, server := range servers {
		input = append(input, map[string]any{"directory": t.TempDir(), "path": server.image.programs, "root": server.image.root,
			"userData": server.userData})
	}
	stdin, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "/usr/bin/python3", "-W", "ignore", filepath.Join("testdata", "consume.py"))
	command.Env = []string{"PYTHONPATH=" + packages, "PYTHONDONTWRITEBYTECODE=1", "TMPDIR=" + t.TempDir()}
	command.Stdin = bytes.NewReader(stdin)
	out, err := command.CombinedOutput()
	lines, results := strings.Split(strings.TrimSpace(string(out)), "\n"), []booted{}
	if err != nil || json.Unmarshal([]byte(lines[len(lines)-1]), &results) != nil || len(results) != len(servers) {
		t.Fatalf("cloud-init: %v\n%s", err, out)
	}
	for i := range results {
		results[i].image = servers[i].image
		if journal, err := os.ReadFile(servers[i].image.journal); err == nil {
			results[i].runs = strings.Split(strings.TrimSpace(strings.ReplaceAll(string(journal), servers[i].image.root, "")), "\n")
		}
	}
	return results
}

func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCloudInitRefuses makes sure that cloud-init is really asked.
func TestCloudInitRefuses(t *testing.T) {
	path := file(t, "user-data", []byte("#cloud-config\nruncmd: none\n"))
	if out, err := cloudInit(t, "schema", "--config-file", path); err == nil && strings.Contains(out, "Valid cloud-config") {
		t.Errorf("cloud-init takes a runcmd that is no list:\n%s", out)
	}
}
