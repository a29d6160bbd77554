// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const tunDevice = "/dev/net/tun"

// openTap makes a tap interface. The kernel chooses its name if the given one is empty. It is removed when all
// descriptors of the file are closed.
func openTap(name string) (*os.File, error) {
	// The ioctl must come before Go's runtime polls the file.
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s, %w", tunDevice, err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a network interface, %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), tunDevice), nil
}

// plugIn makes the server's port of the bridge.
func plugIn(o Options) (*os.File, error) {
	tap, err := openTap(o.Link())
	if err != nil {
		return nil, err
	}
	if err := connect(o); err != nil {
		return nil, errors.Join(fmt.Errorf("plugging the server into bridge %s, %w", o.Bridge, err), tap.Close())
	}
	return tap, nil
}

func connect(o Options) error {
	bridge, err := netlink.LinkByName(o.Bridge)
	if err != nil {
		return err
	}
	port, err := netlink.LinkByName(o.Link())
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(port, bridge); err != nil {
		return err
	}
	return netlink.LinkSetUp(port)
}
