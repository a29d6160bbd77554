// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// entry is the first program of the container.
//
//go:embed entry.sh
var entry []byte

// interfaceName is the name of the server's network interface.
const interfaceName = "eth0"

const (
	containerdConfig = "etc/containerd/config.toml"
	kubeletDropIns   = "etc/kubernetes/kubelet.conf.d"
	osRelease        = "usr/lib/os-release"
	// kubeletSettings differ from those of the cluster: the kernel, its control groups and its file systems are those of the
	// machine, which may be fuller than a kubelet would have it.
	kubeletSettings = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
`
	// kubeletOldGroups is what the kubelet needs on top of that with version 1 of control groups.
	kubeletOldGroups = `failCgroupV1: false
cgroupDriver: cgroupfs
`
	// joinOldGroups stands before kubeadm, where the machine has version 1 of control groups: kubeadm refuses that, and
	// its documentation says to skip the check that does.
	joinOldGroups = `#!/bin/sh
if [ "${1-}" = join ]; then
  exec /usr/bin/kubeadm "$@" --ignore-preflight-errors=SystemVerification
fi
exec /usr/bin/kubeadm "$@"
`
)

// adapt puts right, on the disk of a server, what follows from its being a container. It can be done again at each boot.
func adapt(o Options, root string, groups groupVersion) error {
	settings := kubeletSettings
	files := map[string]string{"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--config-dir=/" + kubeletDropIns + "\n"}
	if groups == groupsV1 {
		settings += kubeletOldGroups
		if err := writeFile(filepath.Join(root, "usr/local/bin/kubeadm"), []byte(joinOldGroups), 0o755); err != nil {
			return fmt.Errorf("adapting the disk of the server, %w", err)
		}
	}
	files[kubeletDropIns+"/90-container.conf"] = settings
	config, err := os.ReadFile(filepath.Join(o.Image, "rootfs", containerdConfig))
	if err != nil {
		return fmt.Errorf("reading containerd's configuration in the server image, %w", err)
	}
	files[containerdConfig] = adaptContainerd(string(config), groups)
	for name, content := range files {
		if err := writeFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("adapting the disk of the server, %w", err)
		}
	}
	if err := nameImage(o, root); err != nil {
		return err
	}
	return provideDevices(o, root)
}

// prettyName is the line of os-release that a Node reports as its operating system.
var prettyName = regexp.MustCompile(`(?m)^PRETTY_NAME="([^"]*)"$`)

// nameImage adds the checksum of the image that was installed to the name of the operating system, for a Node to show what
// it was installed from.
func nameImage(o Options, root string) error {
	image, err := os.Open(filepath.Join(o.Dir, "image"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the image that was installed, %w", err)
	}
	defer func() { _ = image.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, image); err != nil {
		return fmt.Errorf("reading the image that was installed, %w", err)
	}
	release, err := os.ReadFile(filepath.Join(o.Image, "rootfs", osRelease))
	if err != nil {
		return fmt.Errorf("reading the name of the operating system, %w", err)
	}
	release = prettyName.ReplaceAll(release, fmt.Appendf(nil, `PRETTY_NAME="$1, image %x"`, hash.Sum(nil)[:6]))
	if err := writeFile(filepath.Join(root, osRelease), release, 0o644); err != nil {
		return fmt.Errorf("writing the name of the operating system, %w", err)
	}
	return nil
}

// adaptContainerd changes containerd's configuration for a kernel that does not let a container be spared when memory is
// short, and for the version of control groups.
func adaptContainerd(config string, groups groupVersion) string {
	const section = `[plugins."io.containerd.grpc.v1.cri"]`
	config = strings.Replace(config, section, section+"\n  restrict_oom_score_adj = true", 1)
	if groups == groupsV1 {
		config = strings.Replace(config, "SystemdCgroup = true", "SystemdCgroup = false", 1)
	}
	return config
}

// provideDevices puts the list of the server's accelerators where the device plugin looks for it.
func provideDevices(o Options, root string) error {
	target := filepath.Join(root, "etc/server/devices.json")
	devices, err := os.ReadFile(o.devices())
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the accelerators that the server had, %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the accelerators of the server, %w", err)
	}
	return writeFile(target, devices, 0o644)
}

// provideConfigDrive puts the files of the config drive where cloud-init looks for them. Without a config drive nothing
// is there, and cloud-init finds that out.
func provideConfigDrive(o Options, root string) error {
	seed := filepath.Join(root, configDriveSeed)
	addressed := false
	err := unpackConfigDrive(o.configDrive(), seed)
	if err == nil {
		addressed, err = hasNetworkData(seed)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	settings := filepath.Join(root, "etc/cloud/cloud.cfg.d/90-network.cfg")
	if addressed || !o.Address.IsValid() {
		if err := os.Remove(settings); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the address that the server had, %w", err)
		}
		return nil
	}
	content, err := json.Marshal(fixedAddress(o))
	if err != nil {
		return fmt.Errorf("writing the address of the server, %w", err)
	}
	return writeFile(settings, content, 0o644)
}

// fixedAddress is a setting of cloud-init, which is YAML, and so may be JSON.
func fixedAddress(o Options) map[string]any {
	device := map[string]any{"match": map[string]any{"macaddress": strings.ToLower(o.MAC)}, "addresses": []string{o.Address.String()}}
	if o.Gateway.IsValid() {
		device["gateway4"] = o.Gateway.String()
	}
	return map[string]any{"network": map[string]any{"version": 2, "ethernets": map[string]any{interfaceName: device}}}
}

func writeFile(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, mode)
}

func writeSpec(path string, spec *specs.Spec) error {
	content, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the specification of the container, %w", err)
	}
	if err := writeFile(path, content, 0o600); err != nil {
		return fmt.Errorf("writing the specification of the container, %w", err)
	}
	return nil
}
