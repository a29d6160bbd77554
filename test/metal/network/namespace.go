// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
)

// namespaceInterface is the name of the interface in a namespace.
const namespaceInterface = "eth0"

// A Namespace is a network namespace that is plugged into a bridge, for processes that have ports of their own, as a pod has.
// It must be closed, and ends with this process in any case.
type Namespace struct {
	// Address in the network of the bridge, and the length of its prefix.
	Address netip.Prefix
	file    *os.File
	link    netlink.Link
}

// Namespace makes a network namespace, and plugs it into the bridge by an interface of that name, of at most 15 characters.
func (b *Bridge) Namespace(name string, address netip.Prefix) (*Namespace, error) {
	n := &Namespace{Address: address}
	made, plugged, configured := make(chan error), make(chan struct{}), make(chan error)
	go func() {
		// Never unlocked: the thread is in the namespace, and ends with the goroutine.
		runtime.LockOSThread()
		err := n.unshare()
		made <- err
		if err == nil {
			<-plugged
			configured <- n.configure(b.Address.Addr())
		}
	}()
	if err := <-made; err != nil {
		return nil, fmt.Errorf("making a network namespace, %w", err)
	}
	err := n.plugIn(name, b.link)
	close(plugged)
	if err := errors.Join(err, <-configured); err != nil {
		return nil, errors.Join(fmt.Errorf("plugging a network namespace into bridge %s, %w", b.Name, err), n.Close())
	}
	return n, nil
}

func (n *Namespace) unshare() (err error) {
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return err
	}
	n.file, err = os.Open("/proc/thread-self/ns/net")
	return err
}

func (n *Namespace) plugIn(name string, bridge netlink.Link) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = name, bridge.Attrs().Index
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: namespaceInterface, PeerNamespace: netlink.NsFd(n.file.Fd())}
	if err := netlink.LinkAdd(cable); err != nil {
		return err
	}
	n.link = cable
	return netlink.LinkSetUp(cable)
}

// configure runs on a thread in the namespace.
func (n *Namespace) configure(gateway netip.Addr) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(namespaceInterface)
	if err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: &net.IPNet{
		IP: n.Address.Addr().AsSlice(), Mask: net.CIDRMask(n.Address.Bits(), n.Address.Addr().BitLen()),
	}}
	if err := netlink.AddrAdd(link, address); err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(loopback), netlink.LinkSetUp(link),
		netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice()}))
}

// Path is the file by which nsenter enters the namespace.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// Close removes the interface. The namespace ends with its last process.
func (n *Namespace) Close() error {
	var errs []error
	if n.link != nil {
		if err := netlink.LinkDel(n.link); err != nil {
			errs = append(errs, fmt.Errorf("unplugging the network namespace at %s, %w", n.Address, err))
		}
	}
	return errors.Join(append(errs, n.file.Close())...)
}
