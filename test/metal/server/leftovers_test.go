// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
)

// machineSettings are settings of the kernel that a kubelet or kubeadm must not change.
var machineSettings = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward",
	"net/ipv6/conf/all/forwarding", "net/ipv6/conf/default/forwarding"}

// leftovers returns, by kind, what a server could leave behind or change on the machine. Other servers may run.
func (w *fixture) leftovers(t *testing.T) map[string][]string {
	t.Helper()
	bridge, err := netlink.LinkByName(w.network.Name)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	links, err := network.Complete(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Attrs().MasterIndex == bridge.Attrs().Index {
			found["interfaces"] = append(found["interfaces"], link.Attrs().Name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, w.dir) {
			found["mounts"] = append(found["mounts"], line)
		}
	}
	found["control groups"] = controlGroups(t)
	found["processes"] = processes(t)
	for _, name := range machineSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			t.Fatal(err)
		}
		found["settings"] = append(found["settings"], name+" = "+strings.TrimSpace(string(value)))
	}
	return found
}

func controlGroups(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			// Groups come and go.
			return nil
		}
		if entry.IsDir() && strings.HasSuffix(path, "server-"+serverUUID) {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// processes returns those in a control group of the server, and those that were started for it.
func processes(t *testing.T) []string {
	t.Helper()
	var found []string
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		groups, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cgroup"))
		if err != nil {
			// Not a process, or no longer.
			continue
		}
		environment, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err == nil && (strings.Contains(string(groups), serverUUID) || strings.Contains(string(environment), serverUUID)) {
			found = append(found, entry.Name())
		}
	}
	slices.Sort(found)
	return found
}

func checkNothingLeft(t *testing.T, before, after map[string][]string) {
	t.Helper()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the server has left or changed something, -before +after:\n%s", diff)
	}
}
