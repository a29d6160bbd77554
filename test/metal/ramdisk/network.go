// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"
	"go4.org/netipx"
)

// Interface is the network interface by which the machine has booted.
type Interface struct {
	MAC     net.HardwareAddr
	Address netip.Prefix
	// Gateway to Ironic, which may be in another network; none if iPXE was given none.
	Gateway netip.Addr
}

var (
	bootInterface = regexp.MustCompile(`\bBOOTIF=(\S+)`)
	addresses     = regexp.MustCompile(`\bip=(\S+)`)
)

// ParseInterface reads what iPXE has written on the kernel's command line: BOOTIF=MAC, and ip=ADDRESS:SERVER:GATEWAY:NETMASK, as it got
// them by DHCP.
func ParseInterface(commandLine string) (Interface, error) {
	mac, given := bootInterface.FindStringSubmatch(commandLine), addresses.FindStringSubmatch(commandLine)
	if mac == nil || given == nil {
		return Interface{}, fmt.Errorf("the kernel's command line is %q: it must have BOOTIF=MAC and ip=ADDRESS:SERVER:GATEWAY:NETMASK",
			commandLine)
	}
	var found Interface
	var err error
	if found.MAC, err = net.ParseMAC(mac[1]); err != nil {
		return Interface{}, fmt.Errorf("BOOTIF of the kernel's command line, %w", err)
	}
	const gateway, netmask = 2, 3
	fields := strings.Split(given[1], ":")
	if len(fields) <= netmask {
		return Interface{}, fmt.Errorf("ip of the kernel's command line is %q: it must be ADDRESS:SERVER:GATEWAY:NETMASK", given[1])
	}
	address, err := netip.ParseAddr(fields[0])
	if err != nil {
		return Interface{}, fmt.Errorf("ip of the kernel's command line, %w", err)
	}
	bits, _ := net.IPMask(net.ParseIP(fields[netmask]).To4()).Size()
	if found.Address = netip.PrefixFrom(address, bits); bits == 0 {
		return Interface{}, fmt.Errorf("ip of the kernel's command line has the netmask %q: it must be like 255.255.255.0", fields[netmask])
	}
	if fields[gateway] != "" {
		if found.Gateway, err = netip.ParseAddr(fields[gateway]); err != nil {
			return Interface{}, fmt.Errorf("ip of the kernel's command line, the gateway, %w", err)
		}
	}
	return found, nil
}

// Up gives the interface its address, and has the machine send by the gateway.
func (i Interface) Up() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing network interfaces, %w", err)
	}
	for _, link := range links {
		if link.Attrs().HardwareAddr.String() != i.MAC.String() {
			continue
		}
		if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: netipx.PrefixIPNet(i.Address)}); err != nil {
			return fmt.Errorf("giving %s the address %s, %w", link.Attrs().Name, i.Address, err)
		}
		if err := netlink.LinkSetUp(link); err != nil || !i.Gateway.IsValid() {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: i.Gateway.AsSlice()})
	}
	return fmt.Errorf("no network interface has the address %s, by which the machine has booted", i.MAC)
}
