// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vm boots a server that is a virtual machine: qemu, which emulates every instruction (TCG), with firmware, one
// disk, one network interface and a serial console. Its disk is the installed image itself, which the server changes;
// Ironic's config drive is another disk. Or the disk is empty, and the server boots by network to be installed. Boot
// loader and kernel are the image's own. A server that is a container (package server) is ready fifteen times as fast,
// but has the machine's kernel.
//
// A server that runs is one process, started by Run, and ends with it. Its interface belongs to that process, so it
// goes with the process, even if that is killed.
package vm

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

// DefaultMemoryMiB is enough for an operating system, a kubelet and small pods.
const DefaultMemoryMiB = 2048

// What a server boots. The network comes before the disk at the first boot only: a server that reboots then boots its disk.
const (
	BootDisk    = "disk"
	BootNetwork = "network"
)

// Options of a boot.
type Options struct {
	// Server to boot. The image in its directory is its disk, in the format qcow2.
	boot.Server
	// Boot is what the server boots: BootDisk or BootNetwork, with a raw disk in its directory. Empty boots the image that was installed.
	Boot string
	// MemoryMiB is the server's memory, in MiB. The machine needs that much free memory, and some more.
	MemoryMiB int
	// CPUs is the number of the server's processors.
	CPUs int
}

// Validate returns everything that is wrong with the options, or nil.
func (o Options) Validate() error {
	errs := []error{o.Server.Validate()}
	if _, err := uuid.Parse(o.UUID); err != nil {
		errs = append(errs, fmt.Errorf("UUID %q of the server is not valid, such as 6e1f0d6a-4b1e-4a51-9b0a-3c1d5f6a7b80: "+
			"set SERVER_UUID", o.UUID))
	}
	if o.Boot != "" && o.Boot != BootDisk && o.Boot != BootNetwork {
		errs = append(errs, fmt.Errorf("what the server boots, --boot, is %q: it must be %s or %s, or empty for the image that was installed",
			o.Boot, BootDisk, BootNetwork))
	}
	const least = 512
	if o.MemoryMiB < least {
		errs = append(errs, fmt.Errorf("the server's memory, --memory, is %d MiB: no server boots with less than %d", o.MemoryMiB, least))
	}
	if o.CPUs < 1 {
		errs = append(errs, fmt.Errorf("the number of the server's processors, --cpus, is %d: it must be 1 or more", o.CPUs))
	}
	return errors.Join(errs...)
}

// kindVariable is the environment variable that selects virtual machines or containers.
const kindVariable = "E2E_METAL_SERVERS"

// alternative is a hint for machines that cannot run virtual machines.
const alternative = "servers can be containers instead: run `" + kindVariable + "=container make e2e-metal`"

// Enabled returns whether tests boot virtual machines. The environment variable E2E_METAL_SERVERS decides: vm, the
// default, or container. Any other value is an error.
func Enabled() (bool, error) {
	switch kind := os.Getenv(kindVariable); kind {
	case "", "vm":
		return true, nil
	case "container":
		return false, nil
	default:
		return false, fmt.Errorf("%s is %q: it must be vm, which is the default, or container", kindVariable, kind)
	}
}
