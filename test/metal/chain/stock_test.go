// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/sandbox/process"
)

// machineSettings are settings of the kernel that a server would change if it could.
var machineSettings = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"}

// stock is what there is on this machine that the test could leave behind or change, by kind. What other runs have is
// there as well.
type stock map[string][]string

func takeStock(t *testing.T) stock {
	t.Helper()
	s := stock{}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		s["links"] = append(s["links"], link.Attrs().Name)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	s["mounts"] = strings.Split(strings.TrimSpace(string(mounts)), "\n")
	s["control groups"] = controlGroups(t)
	for _, name := range machineSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			t.Fatal(err)
		}
		s["settings"] = append(s["settings"], name+" = "+strings.TrimSpace(string(value)))
	}
	for kind := range s {
		slices.Sort(s[kind])
	}
	return s
}

// controlGroups are those of servers.
func controlGroups(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // groups come and go
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), "server-") {
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

// checkNothingLeft compares what there is with what there was, and looks for processes that have anything to do with the
// directory. Names of links and groups are random: what other runs have added meanwhile is told from what is ours by hand.
func (s stock) checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if diff := cmp.Diff(s, takeStock(t)); diff != "" {
		t.Errorf("the test has left something, or changed it (-before +after):\n%s", diff)
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range processes {
		for _, file := range []string{"cmdline", "environ", "mountinfo"} {
			content, err := os.ReadFile(filepath.Join(found, file))
			if err != nil {
				continue // it has ended meanwhile, or is somebody else's
			}
			if bytes.Contains(content, []byte(dir)) {
				t.Errorf("process %s is left: its %s has %s", filepath.Base(found), file, dir)
			}
		}
	}
}

// lastLines returns the end of a file.
func lastLines(file string) (string, error) {
	const last = 30
	lines, err := process.LastLines(file, last)
	if err != nil {
		return "", fmt.Errorf("reading its end, %w", err)
	}
	return "    " + strings.Join(lines, "\n    "), nil
}
