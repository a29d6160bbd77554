// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/network"
)

// linux are bridges of the kernel.
type linux struct{}

func (linux) start(*testing.T) (func(), error) {
	err := network.NewVLANBridge(bridgeName)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = missing("bridges of this kernel do not filter VLANs")
	}
	return func() {}, err // it goes with its namespace
}

func (linux) plug(port string) error {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return err
	}
	master, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	return netlink.LinkSetMaster(link, master)
}

func (linux) put(port string, vlans map[uint16]bool) error {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return err
	}
	all, err := netlink.BridgeVlanList()
	if err != nil {
		return err
	}
	var errs []error
	for _, vlan := range all[int32(link.Attrs().Index)] {
		errs = append(errs, netlink.BridgeVlanDel(link, vlan.Vid, false, false, false, true))
	}
	for vlan, untagged := range vlans {
		errs = append(errs, netlink.BridgeVlanAdd(link, vlan, untagged, untagged, false, true))
	}
	return errors.Join(errs...)
}

func (linux) vlans(port string) (vlans []string, err error) {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return nil, err
	}
	all, err := netlink.BridgeVlanList()
	for _, vlan := range all[int32(link.Attrs().Index)] {
		vlans = append(vlans, fmt.Sprintf("%d untagged:%t", vlan.Vid, vlan.Flags == access))
	}
	return vlans, err
}

// TestWrongBridge: a bridge that forwards everything confirms no move.
func TestWrongBridge(t *testing.T) {
	w := newFixture(t, "linux", linux{})
	w.in(t, func() error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "br1"
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
			return err
		}
		for name, problem := range map[string]string{
			"br1": "does not filter VLANs", "br9": "finding bridge br9", "server": "server is no bridge",
		} {
			if _, err := openBridge(name); err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("bridge %s: got %v, want %q", name, err, problem)
			}
		}
		return nil
	})
	w.fabric.(*bridge).name = "br1"
	if _, err := w.fabric.move([]string{"server"}, tenant); err == nil || !strings.Contains(err.Error(), "does not filter VLANs") {
		t.Errorf("a bridge that forwards everything confirms a move: %v", err)
	}
}

// ovs are bridges of Open vSwitch.
type ovs struct{ daemon *exec.Cmd }

// start starts the switch and its database, with the datapath of the kernel.
func (o *ovs) start(t *testing.T) (func(), error) {
	program, err := exec.LookPath("ovs-vswitchd")
	if err != nil {
		return nil, missing("there is no Open vSwitch on this machine")
	}
	dir := t.TempDir()
	t.Setenv("OVS_RUNDIR", dir)
	database, socket := filepath.Join(dir, "conf.db"), filepath.Join(dir, "db.sock")
	if err := execute("ovsdb-tool", "create", database); err != nil {
		return nil, err
	}
	server := exec.Command("ovsdb-server", database, "--remote=punix:"+socket)
	o.daemon = exec.Command(program, "--verbose=console:err", "unix:"+socket)
	stop := func() {
		for _, command := range []*exec.Cmd{o.daemon, server} {
			if command.Process != nil {
				_ = command.Process.Kill() // it may have ended
				_ = command.Wait()
			}
		}
	}
	if err := server.Start(); err != nil {
		return stop, err
	}
	// The command waits for the database.
	if err := execute("ovs-vsctl", "--timeout=20", "--retry", "--no-wait", "init"); err != nil {
		return stop, err
	}
	if err := o.daemon.Start(); err != nil {
		return stop, err
	}
	return stop, execute("ovs-vsctl", "--timeout=20", "add-br", bridgeName)
}

func execute(program string, arguments ...string) error {
	if output, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v, %w: %s", program, arguments, err, output)
	}
	return nil
}

func (*ovs) plug(port string) error { return execute("ovs-vsctl", "add-port", bridgeName, port) }

func (*ovs) put(port string, vlans map[uint16]bool) error {
	arguments := []string{"--", "clear", "Port", port, "vlan_mode", "tag", "trunks"}
	mode := "trunk"
	for vlan, untagged := range vlans {
		if untagged && mode == "trunk" {
			mode = "native-untagged" // only one VLAN can be
			arguments = append(arguments, "--", "set", "Port", port, fmt.Sprintf("tag=%d", vlan))
			continue
		}
		arguments = append(arguments, "--", "add", "Port", port, "trunks", fmt.Sprint(vlan))
	}
	if len(vlans) == 1 && mode != "trunk" {
		mode = "access"
	}
	if len(vlans) > 0 {
		arguments = append(arguments, "--", "set", "Port", port, "vlan_mode="+mode)
	}
	return execute("ovs-vsctl", arguments...)
}

func (*ovs) vlans(port string) ([]string, error) {
	output, err := exec.Command("ovs-vsctl", "get", "Port", port, "vlan_mode", "tag", "trunks").Output()
	if fields := strings.Fields(string(output)); err == nil && len(fields) == 3 && fields[0] == "access" && fields[2] == "[]" {
		return []string{fields[1] + " untagged:true"}, nil
	}
	return []string{string(output)}, err
}

// TestSwitchIsDown: the database takes what the switch does not do. That is no confirmation, neither at first nor when the manager asks
// again.
func TestSwitchIsDown(t *testing.T) {
	vendor := &ovs{}
	w := newFixture(t, "openvswitch", vendor)
	if err := vendor.daemon.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.fabric.move([]string{"server"}, tenant); err == nil || !strings.Contains(err.Error(), "server") {
			t.Errorf("a switch that does nothing confirms a move: %v", err)
		}
	}
	if err := vendor.daemon.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.in(t, func() error {
		if _, err := openOpenVSwitch("br9"); err == nil || !strings.Contains(err.Error(), "no bridge named br9") {
			t.Errorf("a bridge that is not there: %v", err)
		}
		return nil
	})
}
