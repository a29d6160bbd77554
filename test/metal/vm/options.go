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

// Options of a boot.
type Options struct {
	// Server to boot. The image in its directory is its disk, in the format qcow2.
	boot.Server
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
	const least = 512
	if o.MemoryMiB < least {
		errs = append(errs, fmt.Errorf("the server's memory, --memory, is %d MiB: no server boots with less than %d", o.MemoryMiB, least))
	}
	if o.CPUs < 1 {
		errs = append(errs, fmt.Errorf("the number of the server's processors, --cpus, is %d: it must be 1 or more", o.CPUs))
	}
	return errors.Join(errs...)
}
