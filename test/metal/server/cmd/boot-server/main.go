// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command boot-server boots a server that is a container, and ends when the server is off. Its environment identifies
// the server, as for any boot command of a rack of emulated servers. SIGTERM, and SIGINT, cut the server's power.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/server"
)

const usage = `usage: boot-server --image DIR --bridge NAME [--container-images DIR]

Boots one server as a container, from the root file system that "make server-image" makes. It runs until the server
turns itself off, or until SIGTERM, which cuts its power. It needs root.

Environment:
  SERVER_NAME  its name, for messages
  SERVER_UUID  its UUID: no two servers of a machine may have the same
  SERVER_MAC   the hardware address of its network interface
  SERVER_DIR   its directory. It holds config-drive.iso, which cloud-init on the server is given; image, what was
               installed; if the server has accelerators, devices.json, such as {"nvidia.com/gpu": ["GPU-0"]}; and,
               if it is to show other hardware than this machine's, hardware.json, such as
               {"cpus": 64, "memoryMiB": 262144}. The server's disk is made there, in the sub-directory disk. It is kept while the server is off, and is
               empty again when image or config-drive.iso have been written again.

Flags:
`

func main() {
	if len(os.Args) == 2 {
		if status, known, err := server.Part(os.Args[1], os.Stdin); known {
			exit(status, err)
		}
	}
	exit(0, run(os.Args[1:]))
}

func exit(status int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		status = 1
	}
	os.Exit(status)
}

func run(args []string) error {
	o := server.Options{}
	flags := o.Flags("boot-server", usage)
	flags.StringVar(&o.ContainerImages, "container-images", os.Getenv("SERVER_CONTAINER_IMAGES"),
		"a `directory` with archives of container images for the server to import when it boots; SERVER_CONTAINER_IMAGES by default")
	if proceed, err := boot.Parse(flags, args); !proceed {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, %w", err)
	}
	return server.Run(ctx, o, self, os.Stdout)
}
