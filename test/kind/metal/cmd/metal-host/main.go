// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command metal-host is the first program of the containers beside kind clusters: Metal3 of a management cluster, and the rack whose
// servers boot as containers in the network of kind. Package metal, test/kind/metal, starts these containers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/kind/metal"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(args) > 0 && args[0] == "metal3" {
		return metal3(ctx, args[1:])
	}
	if len(args) > 1 && args[0] == "rack" {
		return rack(args[1:])
	}
	return errors.New("usage: metal-host metal3 FLAGS, or metal-host rack PROGRAM ARGUMENTS")
}

// metal3 runs Ironic and baremetal-operator, and writes what servers can install once both work.
func metal3(ctx context.Context, args []string) error {
	start := time.Now()
	config := stack.Config{
		// Servers that are containers boot within seconds, and the tests of failures wait for these.
		AgentTimeout: time.Minute, PowerTimeout: 20 * time.Second,
		Progress: func(format string, args ...any) {
			fmt.Printf("%5.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		},
	}
	flags := flag.NewFlagSet("metal-host metal3", flag.ContinueOnError)
	flags.StringVar(&config.Management, "kubeconfig", "", "of an administrator of the management cluster")
	flags.StringVar(&config.Bin, "bin", "", "the directory of the programs")
	flags.StringVar(&config.Dir, "dir", "", "the directory for data and logs")
	flags.StringVar(&config.Host, "host", "", "the name at which the rack reaches this container")
	ready := flags.String("ready", "", "the file that is written when all works, with the image that servers can install")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := stack.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the container ends, and all processes in it
	encoded, err := json.Marshal(s.Media.Add("linux.qcow2", []byte("the disk image of the kind clusters\n")))
	if err != nil {
		return err
	}
	if err := os.WriteFile(*ready+".new", encoded, 0o644); err != nil {
		return err
	}
	if err := os.Rename(*ready+".new", *ready); err != nil {
		return err
	}
	running, done := s.Context(ctx)
	defer done()
	<-running.Done()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(running)
}

// rack makes the container a place where servers can boot, and becomes the rack.
func rack(command []string) error {
	if err := leaveTop("/sys/fs/cgroup"); err != nil {
		return fmt.Errorf("making room for the control groups of servers, %w", err)
	}
	if err := bridgeTo("eth0"); err != nil {
		return fmt.Errorf("bridging servers to the network of the container, %w", err)
	}
	path, err := filepath.Abs(command[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("starting %s, %w", path, syscall.Exec(path, command, os.Environ()))
}

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
