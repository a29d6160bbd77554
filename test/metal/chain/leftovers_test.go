// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
)

// machineSettings are settings of the kernel that a server must not change.
var machineSettings = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"}

// traces finds what this test has created on the machine, and nothing of other tests.
type leftovers struct {
	// dir is the directory of the test.
	dir string
	// marks are the UUIDs of the servers, by which their objects are known.
	marks []string
	// links are the names of all network interfaces of the test.
	links map[string]bool
	// routes are the networks to which the test has made routes.
	routes []netip.Prefix
	// settings of the kernel, and the rules of its firewall, as they were before.
	settings []string
}

func newLeftovers(t *testing.T, dir string) *leftovers {
	return &leftovers{dir: dir, links: map[string]bool{}, settings: readSettings(t)}
}

// find returns the objects of the test, by kind.
func (tr *leftovers) find(t *testing.T) map[string][]string {
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
	routes, err := network.Complete(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range routes {
		if slices.ContainsFunc(tr.routes, func(network netip.Prefix) bool { return route.Dst != nil && route.Dst.String() == network.String() }) {
			found["routes"] = append(found["routes"], route.String())
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
	if groups := tr.controlGroups(t); len(groups) > 0 {
		found["control groups"] = groups
	}
	if processes := tr.processes(t); len(processes) > 0 {
		found["processes"] = processes
	}
	return found
}

// in returns whether a text names an object of the test.
func (tr *leftovers) in(text []byte) bool {
	return slices.ContainsFunc(append([]string{tr.dir}, tr.marks...), func(mark string) bool { return bytes.Contains(text, []byte(mark)) })
}

func (tr *leftovers) controlGroups(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // groups come and go
		}
		if entry.IsDir() && tr.in([]byte(entry.Name())) {
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

// processes returns those that were started for the test, are in a control group of one of its servers, or see a mount
// of one.
func (tr *leftovers) processes(t *testing.T) []string {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, process := range processes {
		for _, file := range []string{"cmdline", "environ", "cgroup", "mountinfo"} {
			content, err := os.ReadFile(filepath.Join(process, file))
			if err != nil {
				continue // it has ended meanwhile
			}
			if tr.in(content) {
				name, _ := os.ReadFile(filepath.Join(process, "comm")) // for the message only
				found = append(found, fmt.Sprintf("%s %s, by its %s", filepath.Base(process), bytes.TrimSpace(name), file))
				break
			}
		}
	}
	return found
}

// noteLinks records the bridge and its interfaces.
func (tr *leftovers) noteLinks(t *testing.T, bridge string) {
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
func (tr *leftovers) checkSeen(t *testing.T, servers int) {
	t.Helper()
	found := tr.find(t)
	if len(tr.links) != servers+1 {
		t.Errorf("%d servers are on the bridge, but the links are %v", servers, tr.links)
	}
	kinds := []string{"links", "control groups", "processes"}
	if len(tr.routes) > 0 {
		kinds = append(kinds, "routes")
	}
	for _, kind := range kinds {
		if len(found[kind]) == 0 {
			t.Errorf("servers run, but none of their %s were found: leftovers would be missed too", kind)
		}
	}
}

// checkGone fails if anything is left after everything was stopped.
func (tr *leftovers) checkGone(t *testing.T, logf func(string, ...any)) {
	t.Helper()
	if found := tr.find(t); len(found) > 0 {
		t.Errorf("the test has left something: %v", found)
	} else {
		logf("no process, link, route, mount or control group is left")
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
