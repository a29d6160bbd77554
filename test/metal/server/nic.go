// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// plugIn makes a veth pair between the network namespace of a process and the bridge.
func plugIn(o Options, pid int) error {
	bridge, err := netlink.LinkByName(o.Bridge)
	if err != nil {
		return fmt.Errorf("finding bridge %s, %w", o.Bridge, err)
	}
	mac, err := net.ParseMAC(o.MAC)
	if err != nil {
		return fmt.Errorf("reading the server's MAC address, %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = o.Link(), bridge.Attrs().Index
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: interfaceName, PeerHardwareAddr: mac, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("plugging the server into bridge %s, %w", o.Bridge, err)
	}
	if err := netlink.LinkSetUp(cable); err != nil {
		return fmt.Errorf("bringing up the server's port of bridge %s, %w", o.Bridge, err)
	}
	return nil
}
