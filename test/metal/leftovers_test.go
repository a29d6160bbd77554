// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// machineSettings are settings of the kernel that a server, its kubelet and kubeadm must not change.
var machineSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward",
	"net/ipv6/conf/all/forwarding", "net/ipv6/conf/default/forwarding",
}

// watchedPlaces are the directories in which Ironic, its libraries and Metal3's operator write by default, and Ironic's
// own tree, which must not change.
var watchedPlaces = []string{
	"../../bin/ironic", "/etc/ironic", "/var/lib/ironic", "/var/log/ironic", "/var/cache/ironic", "/tftpboot", "/httpboot",
	"/opt/metal3",
}

// readState returns what a test must not change on the machine: files, settings of the kernel, and rules of its
// firewall.
func readState(t *testing.T) map[string]string {
	t.Helper()
	state := readFiles(t, watchedPlaces...)
	for _, name := range machineSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		state[name] = fmt.Sprint(strings.TrimSpace(string(value)), err)
	}
	state["firewall"] = strings.Join(firewall(), "\n")
	return state
}

// readFiles has size and time of each file in the places.
func readFiles(t *testing.T, places ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, place := range places {
		err := filepath.WalkDir(place, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				files[path] = fmt.Sprintf("%d bytes, %s", info.Size(), info.ModTime())
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("looking at the files in %s, %v", place, err)
		}
	}
	return files
}

// find returns, by kind, which of the links are on the machine, and the mounts, control groups and processes that have
// one of the marks. A process has a mark if its arguments, its environment, its control group or a mount that it sees
// do.
func find(t *testing.T, marks, links []string) map[string][]string {
	t.Helper()
	marked := func(text []byte) bool {
		return slices.ContainsFunc(marks, func(mark string) bool { return bytes.Contains(text, []byte(mark)) })
	}
	found := map[string][]string{}
	add := func(kind, what string) { found[kind] = append(found[kind], what) }
	all, err := network.Complete(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range all {
		if slices.Contains(links, link.Attrs().Name) {
			add("links", link.Attrs().Name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for mount := range strings.Lines(string(mounts)) {
		if marked([]byte(mount)) {
			add("mounts", mount)
		}
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // groups come and go
		}
		if entry.IsDir() && marked([]byte(entry.Name())) {
			add("control groups", path)
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		for _, file := range []string{"cmdline", "environ", "cgroup", "mountinfo"} {
			content, err := os.ReadFile(filepath.Join(process, file))
			if err == nil && marked(content) { // or it has ended meanwhile
				name, _ := os.ReadFile(filepath.Join(process, "comm")) // for the message only
				add("processes", fmt.Sprintf("%s %s, by its %s", filepath.Base(process), bytes.TrimSpace(name), file))
				break
			}
		}
	}
	return found
}

// checkSeen fails if find overlooks something of the test while it runs: then checkGone would overlook it too.
func (w *fixture) checkSeen(t *testing.T, links int, kinds ...string) {
	t.Helper()
	found := find(t, w.marks, w.links)
	if len(found["links"]) != links {
		t.Errorf("the links %v were found, want %d of %v", found["links"], links, w.links)
	}
	for _, kind := range kinds {
		if len(found[kind]) == 0 {
			t.Errorf("the test runs, but none of its %s were found: leftovers would be missed too", kind)
		}
	}
}

// checkGone fails if anything is left after everything was stopped, or has changed on the machine.
func (w *fixture) checkGone(t *testing.T, before map[string]string) {
	t.Helper()
	// The kernel ends the processes of a namespace some time after its first one.
	if err := poll.Await(context.Background(), "nothing to be left of the test", func(context.Context) error {
		if found := find(t, w.marks, w.links); len(found) > 0 {
			return fmt.Errorf("there still is %v", found)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, readState(t)); diff != "" {
		t.Errorf("files outside of the test's directory, settings of the kernel, or its firewall have changed "+
			"(-before +after):\n%s", diff)
	}
	w.logf("no process, link, mount or control group is left")
}

// TestLeftoversAreFound: a check that finds nothing would always pass.
func TestLeftoversAreFound(t *testing.T) {
	dir := t.TempDir()
	before := readFiles(t, dir, filepath.Join(dir, "missing"))
	writeFile(t, filepath.Join(dir, "new"), []byte("x"), 0o600)
	if maps.Equal(before, readFiles(t, dir)) {
		t.Error("a new file is not seen")
	}
	command := exec.Command("sleep", "600")
	command.Env = []string{"TMPDIR=" + dir}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill() // it runs
		_ = command.Wait()         // it was killed
	}()
	poll.Eventually(t, "the process to be found", func(context.Context) error {
		if found := find(t, []string{dir}, []string{"lo"}); len(found["processes"]) != 1 || len(found["links"]) != 1 {
			return fmt.Errorf("found are %v", found)
		}
		return nil
	})
}
