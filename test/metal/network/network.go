// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network makes the network that test servers are plugged into: a Linux bridge, on which the machine itself has an
// address, so that servers reach what runs on the machine and nothing beyond it. Nothing is forwarded or translated, and
// no firewall rule is made.
package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// A Bridge is a network on this machine. It must be closed.
type Bridge struct {
	// Name of the interface.
	Name string
	// Address of this machine on the bridge, and the length of the network's prefix.
	Address netip.Prefix
	link    netlink.Link
}

// New makes a bridge of that name, of at most 15 characters, and gives the machine the address on it. It is an error if an
// interface of that name exists: it is somebody else's.
func New(name string, address netip.Prefix) (*Bridge, error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
		return nil, fmt.Errorf("making bridge %s, %w", name, err)
	}
	b := &Bridge{Name: name, Address: address}
	if err := b.bringUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("making bridge %s, %w", name, err), b.Close())
	}
	return b, nil
}

func (b *Bridge) bringUp() (err error) {
	if b.link, err = netlink.LinkByName(b.Name); err != nil {
		return fmt.Errorf("finding it, %w", err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{
		IP: b.Address.Addr().AsSlice(), Mask: net.CIDRMask(b.Address.Bits(), b.Address.Addr().BitLen()),
	}}
	if err := netlink.AddrAdd(b.link, address); err != nil {
		return fmt.Errorf("giving it address %s, %w", b.Address, err)
	}
	if err := netlink.LinkSetUp(b.link); err != nil {
		return fmt.Errorf("bringing it up, %w", err)
	}
	return nil
}

// Server returns the n-th address of the network after that of this machine, for a server.
func (b *Bridge) Server(n int) netip.Prefix {
	address := b.Address.Addr()
	for range n {
		address = address.Next()
	}
	return netip.PrefixFrom(address, b.Address.Bits())
}

// Close removes the bridge.
func (b *Bridge) Close() error {
	link := b.link
	if link == nil {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = b.Name
		link = &netlink.Bridge{LinkAttrs: attributes}
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("removing bridge %s, %w", b.Name, err)
	}
	return nil
}
