// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// access are the flags of the VLAN of an access port: untagged frames are in it, and its frames leave untagged.
const access = nl.BRIDGE_VLAN_INFO_PVID | nl.BRIDGE_VLAN_INFO_UNTAGGED

// bridge is a Linux bridge with VLAN filtering. Nothing is stored but in the kernel, so a crash leaves nothing to repair.
type bridge struct {
	name   string
	handle *netlink.Handle
	// mu lets one move change ports at a time.
	mu sync.Mutex
}

// openBridge opens a bridge of the network namespace of the calling thread.
func openBridge(name string) (*bridge, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink, %w", err)
	}
	b := &bridge{name: name, handle: handle}
	_, err = b.open()
	return b, err
}

// open finds the bridge. It is an error if the bridge would forward frames of any VLAN.
func (b *bridge) open() (*netlink.Bridge, error) {
	link, err := b.handle.LinkByName(b.name)
	if err != nil {
		return nil, fmt.Errorf("finding bridge %s, %w", b.name, err)
	}
	found, isBridge := link.(*netlink.Bridge)
	if !isBridge {
		return nil, fmt.Errorf("%s is no bridge", b.name)
	}
	if found.VlanFiltering == nil || !*found.VlanFiltering {
		return nil, fmt.Errorf("bridge %s does not filter VLANs: run `ip link set %s type bridge vlan_filtering 1`", b.name, b.name)
	}
	return found, nil
}

// move is that of fabric. The ports leave their VLANs before one of them enters the new one.
func (b *bridge) move(names []string, vlan uint16) (changed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ports, err := b.portsOf(names)
	if err != nil {
		return false, err
	}
	vlans, err := b.vlans()
	if err != nil {
		return false, err
	}
	for _, port := range ports {
		for _, info := range vlans[int32(port.Attrs().Index)] {
			if info.Vid == vlan && info.Flags == access {
				continue
			}
			if err := b.handle.BridgeVlanDel(port, info.Vid, false, false, false, true); err != nil {
				return true, fmt.Errorf("taking port %s out of VLAN %d, %w", port.Attrs().Name, info.Vid, err)
			}
			changed = true
		}
	}
	for _, port := range ports {
		if isIn(vlans[int32(port.Attrs().Index)], vlan) {
			continue
		}
		if err := b.handle.BridgeVlanAdd(port, vlan, true, true, false, true); err != nil {
			return true, fmt.Errorf("putting port %s into VLAN %d, %w", port.Attrs().Name, vlan, err)
		}
		changed = true
	}
	return changed, b.confirm(ports, vlan)
}

// confirm reads back what the kernel has.
func (b *bridge) confirm(ports []netlink.Link, vlan uint16) error {
	vlans, err := b.vlans()
	if err != nil {
		return err
	}
	for _, port := range ports {
		if now := vlans[int32(port.Attrs().Index)]; len(now) != 1 || !isIn(now, vlan) {
			return fmt.Errorf("port %s is not in VLAN %d alone", port.Attrs().Name, vlan)
		}
	}
	return nil
}

func isIn(vlans []*nl.BridgeVlanInfo, vlan uint16) bool {
	return slices.ContainsFunc(vlans, func(info *nl.BridgeVlanInfo) bool { return info.Vid == vlan && info.Flags == access })
}

// portsOf finds ports of the bridge.
func (b *bridge) portsOf(names []string) ([]netlink.Link, error) {
	bridge, err := b.open()
	if err != nil {
		return nil, err
	}
	var ports []netlink.Link
	for _, name := range names {
		port, err := b.handle.LinkByName(name)
		if err != nil {
			return nil, fmt.Errorf("finding port %s, %w", name, err)
		}
		if port.Attrs().MasterIndex != bridge.Index {
			return nil, fmt.Errorf("%s is no port of bridge %s", name, b.name)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// vlans are those of all ports, by the index of their interface. An error, such as when a port is plugged in meanwhile, fails the
// request, which the manager repeats.
func (b *bridge) vlans() (map[int32][]*nl.BridgeVlanInfo, error) {
	vlans, err := b.handle.BridgeVlanList()
	if err != nil {
		return nil, fmt.Errorf("reading the VLANs of bridge %s, %w", b.name, err)
	}
	return vlans, nil
}
