// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network makes the network of test servers: a Linux bridge on which the machine has an address, so that
// servers reach what runs on the machine and nothing beyond it. Nothing is forwarded or translated, and no firewall
// rule is made.
package network

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"go4.org/netipx"
	"golang.org/x/sys/unix"
)

// A Bridge is a network on this machine. It must be closed.
type Bridge struct {
	// Name of the interface.
	Name string
	// Address of this machine on the bridge, and the length of the network's prefix.
	Address netip.Prefix
	link    netlink.Link
	routes  []*netlink.Route
}

// New makes a bridge of that name, of at most 15 characters, and gives the machine the address on it. An interface of
// that name that exists is an error: it is not ours.
func New(name string, address netip.Prefix) (*Bridge, error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	b := &Bridge{Name: name, Address: address, link: &netlink.Bridge{LinkAttrs: attributes}}
	if err := netlink.LinkAdd(b.link); err != nil {
		return nil, fmt.Errorf("making bridge %s, %w", name, err)
	}
	err := b.Add(address)
	if err == nil {
		err = netlink.LinkSetUp(b.link)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making bridge %s, %w", name, err), b.Close())
	}
	return b, nil
}

// Add gives this machine another address on the bridge.
func (b *Bridge) Add(address netip.Prefix) error {
	// Without the flag, an IPv6 address cannot be listened on for a second, in which the kernel looks for another owner.
	if err := netlink.AddrAdd(b.link, &netlink.Addr{Flags: unix.IFA_F_NODAD, IPNet: netipx.PrefixIPNet(address)}); err != nil {
		return fmt.Errorf("giving bridge %s the address %s, %w", b.Name, address, err)
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

// Route has this machine send to a network by way of a server, until the bridge is closed. It is an error if there is a route
// to that network already.
func (b *Bridge) Route(to netip.Prefix, gateway netip.Addr) error {
	route := &netlink.Route{LinkIndex: b.link.Attrs().Index, Gw: gateway.AsSlice(), Dst: netipx.PrefixIPNet(to.Masked())}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("making a route to %s by %s, %w", to, gateway, err)
	}
	b.routes = append(b.routes, route)
	return nil
}

// Close removes the bridge, and the routes by its servers.
func (b *Bridge) Close() error {
	var errs []error
	for _, route := range b.routes {
		if err := netlink.RouteDel(route); err != nil {
			errs = append(errs, fmt.Errorf("removing the route to %s, %w", route.Dst, err))
		}
	}
	b.routes = nil
	if err := netlink.LinkDel(b.link); err != nil {
		errs = append(errs, fmt.Errorf("removing bridge %s, %w", b.Name, err))
	}
	return errors.Join(errs...)
}

// Complete calls a function that lists links or routes until its answer is complete. The kernel interrupts a list when
// something changes meanwhile, such as by other tests on the machine.
func Complete[T any](list func() ([]T, error)) ([]T, error) {
	const attempts = 100
	var all []T
	var err error
	for range attempts {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
