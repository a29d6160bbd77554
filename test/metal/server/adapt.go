// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	kubeletService   = "etc/systemd/system/kubelet.service.d/15-container.conf"
	osRelease        = "usr/lib/os-release"
	// kubeletSettings override those of the cluster: kernel, control groups and file systems are the machine's, and its
	// disk may be fuller than a kubelet's defaults permit.
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
	// joinOldGroups wraps kubeadm where the machine has version 1 of control groups. kubeadm rejects that unless the
	// check is skipped, as its documentation says.
	joinOldGroups = `#!/bin/sh
if [ "${1-}" = join ]; then
  exec /usr/bin/kubeadm "$@" --ignore-preflight-errors=SystemVerification
fi
exec /usr/bin/kubeadm "$@"
`
)

// adapt changes the files on the disk that a container needs to be different. It can run again at each boot.
func adapt(o Options, root string, groups groupVersion) error {
	settings := kubeletSettings
	// Read after 10-kubeadm.conf. /etc/default/kubelet is the user's, as on any server.
	files := map[string]string{kubeletService: "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml --config-dir=/" +
		kubeletDropIns + "\"\n"}
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
	return writeDevices(o, root)
}

// adaptContainerd changes containerd's configuration for a kernel that does not let a container lower its OOM score,
// and for the version of control groups.
func adaptContainerd(config string, groups groupVersion) string {
	const section = `[plugins."io.containerd.grpc.v1.cri"]`
	config = strings.Replace(config, section, section+"\n  restrict_oom_score_adj = true", 1)
	if groups == groupsV1 {
		config = strings.Replace(config, "SystemdCgroup = true", "SystemdCgroup = false", 1)
	}
	return config
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
