// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/leftovers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
)

// machineSettings are settings of the kernel that a server must not change.
var machineSettings = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"}

// traces finds what this test has created on the machine, and nothing of other tests.
type traces struct {
	// dir is the directory of the test.
	dir string
	// marks are the UUIDs of the servers, by which their objects are known.
	marks []string
	// links are the names of all network interfaces of the test.
	links map[string]bool
	// settings of the kernel, and the rules of its firewall, as they were before.
	settings []string
}

func newTraces(t *testing.T, dir string) *traces {
	return &traces{dir: dir, links: map[string]bool{}, settings: readSettings(t)}
}

// find returns the objects of the test, by kind.
func (tr *traces) find(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	links, err := network.Complete(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if tr.links[link.Attrs().Name] {
			found["links"] = append(found["links"], link.Attrs().Name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for mount := range strings.Lines(string(mounts)) {
		if tr.in([]byte(mount)) {
			found["mounts"] = append(found["mounts"], mount)
		}
	}
	groups, err := leftovers.ControlGroups(tr.in)
	if err != nil {
		t.Fatal(err)
	}
	processes, err := leftovers.Processes(tr.in)
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) > 0 {
		found["control groups"] = groups
	}
	if len(processes) > 0 {
		found["processes"] = processes
	}
	return found
}

// in returns whether a text names an object of the test.
func (tr *traces) in(text []byte) bool {
	return slices.ContainsFunc(append([]string{tr.dir}, tr.marks...), func(mark string) bool { return bytes.Contains(text, []byte(mark)) })
}

// noteLinks records the bridge and its interfaces.
func (tr *traces) noteLinks(t *testing.T, bridge string) {
	t.Helper()
	of, err := netlink.LinkByName(bridge)
	if err != nil {
		t.Fatal(err)
	}
	links, err := network.Complete(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Attrs().MasterIndex == of.Attrs().Index || link.Attrs().Name == bridge {
			tr.links[link.Attrs().Name] = true
		}
	}
}

// checkSeen fails if find overlooks something of a running server: then checkGone would overlook it too.
func (tr *traces) checkSeen(t *testing.T, servers int) {
	t.Helper()
	found := tr.find(t)
	if len(tr.links) != servers+1 {
		t.Errorf("%d servers are on the bridge, but the links are %v", servers, tr.links)
	}
	for _, kind := range []string{"links", "control groups", "processes"} {
		if len(found[kind]) == 0 {
			t.Errorf("servers run, but none of their %s were found: leftovers would be missed too", kind)
		}
	}
}

// checkGone fails if anything is left after everything was stopped.
func (tr *traces) checkGone(t *testing.T, logf func(string, ...any)) {
	t.Helper()
	if found := tr.find(t); len(found) > 0 {
		t.Errorf("the test has left something: %v", found)
	} else {
		logf("no process, link, mount or control group is left")
	}
	if diff := cmp.Diff(tr.settings, readSettings(t)); diff != "" {
		t.Errorf("settings of the kernel, or its firewall, have changed (-before +after):\n%s", diff)
	}
}

func readSettings(t *testing.T) []string {
	t.Helper()
	var settings []string
	for _, name := range machineSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			t.Fatal(err)
		}
		settings = append(settings, name+" = "+strings.TrimSpace(string(value)))
	}
	return append(settings, firewall()...)
}
