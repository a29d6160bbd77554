// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/metal"
)

// leaveTop moves our process below the topmost control group. In version 2 a group that has processes, as the topmost of a container
// has, cannot have groups with controllers, which servers need. In version 1 there is nothing to do.
func leaveTop(top string) error {
	controllers, err := os.ReadFile(filepath.Join(top, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	own := filepath.Join(top, "rack")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	processes, err := os.ReadFile(filepath.Join(top, "cgroup.procs"))
	if err != nil {
		return err
	}
	for process := range strings.FieldsSeq(string(processes)) {
		if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte(process), 0o644); err != nil {
			return err
		}
	}
	for controller := range strings.FieldsSeq(string(controllers)) {
		if err := os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// bridgeTo makes a bridge of an interface. The bridge takes over its addresses and routes: a server that is plugged in is in the
// network of the interface.
func bridgeTo(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s, %w", name, err)
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the addresses of %s, %w", name, err)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the routes of %s, %w", name, err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU = metal.Bridge, link.Attrs().MTU
	// Neighbors know it by this one.
	attributes.HardwareAddr = link.Attrs().HardwareAddr
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("making bridge %s, %w", metal.Bridge, err)
	}
	if err := netlink.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("plugging %s into bridge %s, %w", name, metal.Bridge, err)
	}
	for _, address := range addresses {
		if address.IP.IsLinkLocalUnicast() {
			continue // each interface makes its own
		}
		if err := netlink.AddrDel(link, &address); err != nil {
			return fmt.Errorf("taking address %s from %s, %w", address.IPNet, name, err)
		}
		moved := &netlink.Addr{IPNet: address.IPNet}
		if address.IP.To4() == nil {
			// The address was checked when the container got it. While it is checked again, nothing can listen on it.
			moved.Flags = unix.IFA_F_NODAD
			// Docker switches IPv6 off in a container, and on again for the interfaces that it makes.
			if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", metal.Bridge, "disable_ipv6"), []byte("0"), 0o644); err != nil {
				return fmt.Errorf("switching IPv6 on for bridge %s, %w", metal.Bridge, err)
			}
		}
		if err := netlink.AddrAdd(bridge, moved); err != nil {
			return fmt.Errorf("giving address %s to bridge %s, %w", address.IPNet, metal.Bridge, err)
		}
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("setting bridge %s up, %w", metal.Bridge, err)
	}
	// Those without a gateway come with the addresses, and those of IPv6 with one do not go with them.
	for _, route := range routes {
		if route.Gw == nil {
			continue
		}
		everything := &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		if route.Gw.To4() != nil {
			everything = &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		}
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: bridge.Attrs().Index, Gw: route.Gw, Dst: everything}); err != nil {
			return fmt.Errorf("setting the route by %s, %w", route.Gw, err)
		}
	}
	return nil
}
