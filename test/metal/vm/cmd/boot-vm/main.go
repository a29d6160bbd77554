// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command boot-vm boots a server that is a virtual machine, and ends when the server is off. Its environment identifies
// the server, as for any boot command of a rack of emulated servers. SIGTERM, and SIGINT, cut the server's power.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/vm"
)

const usage = `usage: boot-vm --image DIR --bridge NAME [--boot disk|network] [--memory MIB] [--cpus N]

Boots one server as a virtual machine, which needs no hardware virtualisation, from the disk image that was installed on
it. It runs until the server turns itself off, or until SIGTERM, which cuts its power; a server that reboots goes on. Its
serial console is standard output. It needs root, for its network interface.

Environment:
  SERVER_NAME  its name, for messages
  SERVER_UUID  its UUID: no two servers of a machine may have the same
  SERVER_MAC   the hardware address of its network interface
  SERVER_BOOT  what it boots: network, by DHCP, or disk, the raw disk in its directory, which may be empty. If it is not
               set, the server boots the image there
  SERVER_DIR   its directory. It holds disk, or image, such as a copy of what "make server-disk" makes, which is written
               to; config-drive.iso, if it has a config drive; and, if it has accelerators, devices.json, such as
               {"nvidia.com/gpu": ["GPU-0"]}.

Flags:
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o := vm.Options{}
	flags := o.Flags("boot-vm", usage)
	flags.StringVar(&o.Boot, "boot", os.Getenv("SERVER_BOOT"),
		"what the server boots, disk or network, with the raw disk in its directory; empty is the image there; SERVER_BOOT by default")
	flags.IntVar(&o.MemoryMiB, "memory", vm.DefaultMemoryMiB, "the server's memory, in `MiB`")
	flags.IntVar(&o.CPUs, "cpus", 2, "the `number` of the server's processors")
	if proceed, err := boot.Parse(flags, args); !proceed {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return vm.Run(ctx, o, os.Stdout)
}
