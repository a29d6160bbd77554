// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

// DefaultMemoryMiB is enough for an operating system, a kubelet and small pods.
const DefaultMemoryMiB = 2048

// Options say which server boots.
type Options struct {
	// Server says which. The image in its directory is its disk, in the format qcow2.
	boot.Server
	// MemoryMiB is the server's memory, in MiB. The machine must have that much to spare, and some more.
	MemoryMiB int
	// CPUs is the number of the server's processors.
	CPUs int
}

// Validate returns every reason why no server could be booted with these options, or nil.
func (o Options) Validate() error {
	errs := []error{o.Server.Validate()}
	if _, err := uuid.Parse(o.UUID); err != nil {
		errs = append(errs, fmt.Errorf("UUID %q of the server is none, such as 6e1f0d6a-4b1e-4a51-9b0a-3c1d5f6a7b80, which the firmware of a "+
			"machine has: set SERVER_UUID", o.UUID))
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
