// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

// rootFilesystem is our part of the server image.
const rootFilesystem = "../image/rootfs"

func TestAdaptDisk(t *testing.T) {
	config, err := os.ReadFile(filepath.Join(rootFilesystem, containerdConfig))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		version groupVersion
		// want has texts that each file must have once; a file without texts must not exist.
		want map[string][]string
	}{
		"Version1": {
			reason: "kubelet, kubeadm and containerd need a setting each.", version: groupsV1,
			want: map[string][]string{
				containerdConfig:                      {"restrict_oom_score_adj = true", "SystemdCgroup = false"},
				kubeletService:                        {"--config-dir=/" + kubeletDropIns},
				"etc/default/kubelet":                 nil,
				kubeletDropIns + "/90-container.conf": {"failCgroupV1: false", "cgroupDriver: cgroupfs", "failSwapOn: false"},
				"usr/local/bin/kubeadm":               {"--ignore-preflight-errors=SystemVerification"},
				"etc/server/devices.json":             {"GPU-0"},
			},
		},
		"Version2": {
			reason: "No setting is needed, and kubeadm is not wrapped.", version: groupsV2,
			want: map[string][]string{
				containerdConfig:                      {"restrict_oom_score_adj = true", "SystemdCgroup = true"},
				kubeletService:                        {"--config-dir=/" + kubeletDropIns},
				"etc/default/kubelet":                 nil,
				kubeletDropIns + "/90-container.conf": {"failSwapOn: false"},
				"usr/local/bin/kubeadm":               nil,
				"etc/server/devices.json":             {"GPU-0"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, root := Options{Server: boot.Server{Dir: t.TempDir(), Image: t.TempDir()}}, t.TempDir()
			for path, content := range map[string][]byte{
				filepath.Join(o.Image, "rootfs", containerdConfig): config, o.Devices(): []byte(`{"nvidia.com/gpu": ["GPU-0"]}`),
				filepath.Join(o.Image, "rootfs", osRelease): []byte("PRETTY_NAME=\"Debian 12\"\nNAME=\"Debian\"\n"),
				filepath.Join(o.Dir, "image"):               []byte("image 1"),
			} {
				if err := writeFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := adapt(o, root, tc.version); err != nil {
					t.Fatal(err)
				}
			}
			for path, want := range tc.want {
				content, err := os.ReadFile(filepath.Join(root, path))
				if (err == nil) != (want != nil) {
					t.Errorf("%s\n%s is there: %t, want %t", tc.reason, path, err == nil, want != nil)
				}
				for _, text := range want {
					if strings.Count(string(content), text) != 1 {
						t.Errorf("%s\n%s does not have %q once:\n%s", tc.reason, path, text, content)
					}
				}
			}
		})
	}
}

func TestRemovedAccelerators(t *testing.T) {
	o, root := Options{Server: boot.Server{Dir: t.TempDir()}}, t.TempDir()
	if err := os.WriteFile(o.Devices(), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, present := range []bool{true, false} {
		if err := writeDevices(o, root); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(root, "etc/server/devices.json")); (err == nil) != present {
			t.Errorf("the list of accelerators is there: %t, want %t", err == nil, present)
		}
		if err := os.RemoveAll(o.Devices()); err != nil {
			t.Fatal(err)
		}
	}
}
