// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// link returns the name of the machine's end of the server's network cable.
func (o Options) link() string {
	sum := sha256.Sum256([]byte(o.UUID))
	return "server" + hex.EncodeToString(sum[:4])
}

// plugIn gives the network namespace of a process its interface, whose other end is on the bridge.
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
	attributes.Name, attributes.MasterIndex = o.link(), bridge.Attrs().Index
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: interfaceName, PeerHardwareAddr: mac, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("plugging the server into bridge %s, %w", o.Bridge, err)
	}
	if err := netlink.LinkSetUp(cable); err != nil {
		return fmt.Errorf("bringing up the server's port of bridge %s, %w", o.Bridge, err)
	}
	return nil
}
