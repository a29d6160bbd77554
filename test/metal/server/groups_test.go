// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"path/filepath"
	"testing"
)

const (
	mountsV1 = `proc /proc proc rw,relatime 0 0
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
`
	mountsV2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"
	ownV1    = "4:memory:/session/1\n2:name=systemd:/login\n1:cpu:/\n0::/unified\n"
	ownV2    = "0::/user.slice/session-1.scope\n"
)

func TestGroups(t *testing.T) {
	cases := map[string]struct {
		reason, mounts, own string
		version             groupVersion
		// group is that of the container, as runc takes it; directories are where it is, and where our own is.
		group       string
		directories map[string]string
	}{
		"Version1": {
			reason: "Controllers have hierarchies of their own; that of version 2 is for systemd only.",
			mounts: mountsV1, own: ownV1, version: groupsV1, group: "server-1",
			directories: map[string]string{
				"/sys/fs/cgroup/cpu": "/", "/sys/fs/cgroup/memory": "/session/1", "/sys/fs/cgroup/systemd": "/login",
				"/sys/fs/cgroup/unified": "/unified",
			},
		},
		"Version2": {
			reason: "Our group has processes, so a group with controllers cannot be below it.",
			mounts: mountsV2, own: ownV2, version: groupsV2, group: "/server-1",
			directories: map[string]string{"/sys/fs/cgroup": "/user.slice/session-1.scope"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found := hierarchies(tc.mounts)
			if got := versionOf(found); got != tc.version {
				t.Errorf("%s\nversion is %d, want %d", tc.reason, got, tc.version)
			}
			if got := groupOf("server-1", tc.version); got != tc.group {
				t.Errorf("%s\ngroup is %q, want %q", tc.reason, got, tc.group)
			}
			if len(found) != len(tc.directories) {
				t.Errorf("%s\nfound %d hierarchies, want %d", tc.reason, len(found), len(tc.directories))
			}
			for _, h := range found {
				if got := ownGroup(h, tc.own); got != tc.directories[h.directory] {
					t.Errorf("%s\nin %s we are in %q, want %q", tc.reason, h.directory, got, tc.directories[h.directory])
				}
			}
		})
	}
}

func TestNestedGroupsAreRemoved(t *testing.T) {
	root := t.TempDir()
	h := hierarchy{directory: root, controllers: []string{"memory"}}
	for _, directory := range []string{"session/server-1/system.slice/containerd.service", "server-1", "session/server-2"} {
		if err := os.MkdirAll(filepath.Join(root, directory), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := removeGroups("server-1", []hierarchy{h}, "4:memory:/session\n"); err != nil {
			t.Fatal(err)
		}
	}
	for directory, want := range map[string]bool{"session/server-1": false, "server-1": false, "session/server-2": true} {
		if _, err := os.Stat(filepath.Join(root, directory)); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", directory, err == nil, want)
		}
	}
}
