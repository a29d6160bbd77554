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

	"github.com/vishvananda/netlink"
	"go4.org/netipx"
	"golang.org/x/sys/unix"
)

// namespaceInterface is the name of the interface in a namespace.
const namespaceInterface = "eth0"

// A Namespace is a network namespace that is plugged into a bridge, for processes that have ports of their own, as a pod has.
// It must be closed, and ends with this process in any case.
type Namespace struct {
	// Address in the network of the bridge, and the length of its prefix.
	Address netip.Prefix
	file    *os.File
	// plugged is whether it has an interface.
	plugged bool
}

// Namespace makes a network namespace, and plugs it into the bridge by an interface of that name, of at most 15 characters.
func (b *Bridge) Namespace(name string, address netip.Prefix) (*Namespace, error) {
	n, err := Isolated()
	if err != nil {
		return nil, err
	}
	n.Address = address
	if err = n.plugIn(b.Name, name, ""); err == nil {
		err = n.Do(func() error { return n.configure(b.Address.Addr()) })
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("plugging a network namespace into bridge %s, %w", b.Name, err), n.Close())
	}
	return n, nil
}

// Isolated makes a network namespace with nothing in it.
func Isolated() (*Namespace, error) {
	n := &Namespace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making a network namespace, %w", err)
	}
	return n, nil
}

// Here is the network namespace of the process.
func Here() (*Namespace, error) {
	file, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace of the process, %w", err)
	}
	return &Namespace{file: file}, nil
}

// Do calls a function on a thread that is in the namespace. Sockets that it opens stay there.
func (n *Namespace) Do(call func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace, %w", err)
		}
		return call()
	})
}

// onThread calls a function on a thread of its own, which ends with it.
func onThread(call func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine may get a thread that is in another namespace
		done <- call()
	}()
	return <-done
}

// plugIn plugs the namespace into a bridge, by a port of that name. It runs on a thread in the namespace of the bridge.
// bridge and mac may be empty.
func (n *Namespace) plugIn(bridge, port, mac string) (err error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = port
	if bridge != "" {
		link, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		attributes.MasterIndex = link.Attrs().Index
	}
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: namespaceInterface, PeerNamespace: netlink.NsFd(n.file.Fd())}
	if mac != "" {
		if cable.PeerHardwareAddr, err = net.ParseMAC(mac); err != nil {
			return err
		}
	}
	if err := netlink.LinkAdd(cable); err != nil {
		return err
	}
	n.plugged = true
	return netlink.LinkSetUp(cable)
}

// configure runs on a thread in the namespace. The gateway may be none.
func (n *Namespace) configure(gateway netip.Addr) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(namespaceInterface)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: netipx.PrefixIPNet(n.Address)}); err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(loopback), netlink.LinkSetUp(link)); err != nil || !gateway.IsValid() {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice()})
}

// Path is the file by which nsenter enters the namespace.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// Close removes the interface, and with it the port of the bridge. The namespace ends with its last process.
func (n *Namespace) Close() error {
	var err error
	if n.plugged {
		err = n.Do(func() error {
			link, err := netlink.LinkByName(namespaceInterface)
			if err != nil {
				return err
			}
			return netlink.LinkDel(link)
		})
	}
	if err != nil {
		err = fmt.Errorf("unplugging the network namespace at %s, %w", n.Address, err)
	}
	return errors.Join(err, n.file.Close())
}
