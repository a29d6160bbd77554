// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
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

// mustBeCloudConfig asks cloud-init what it thinks of user data.
func mustBeCloudConfig(t *testing.T, document []byte) {
	t.Helper()
	if out, err := cloudInit(t, "schema", "--config-file", file(t, "user-data", document)); err != nil || !strings.Contains(out, "Valid cloud-config") {
		t.Errorf("cloud-init does not take this (%v):\n%s\n%s", err, out, document)
	}
}

// converted lets cloud-init make netplan's configuration of network data, as a server does at boot.
func converted(t *testing.T, document []byte, macs ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"devel", "net-convert", "--network-data", file(t, "network_data.json", document), "--kind", "network_data.json",
		"--directory", dir, "--distro", "debian", "--output-kind", "netplan"}
	for _, mac := range macs {
		args = append(args, "--mac", mac)
	}
	out, err := cloudInit(t, args...)
	if err != nil {
		t.Fatalf("cloud-init does not take this (%v):\n%s\n%s", err, out, document)
	}
	netplan, err := os.ReadFile(filepath.Join(dir, "etc", "netplan", "50-cloud-init.yaml"))
	if err != nil {
		t.Fatalf("cloud-init has written no netplan: %v\n%s", err, out)
	}
	return string(netplan)
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
