// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"net"
)

// Disabled is the bind address that stands for "do not serve".
const Disabled = "0"

// CheckAddress returns an error that names the flag if its bind address cannot be listened on. Servers say so too, but
// late, and without the flag.
func CheckAddress(flag, address string) error {
	if address == Disabled || address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--%s is %q, which cannot be listened on, %w: choose another address, or %q to do without", flag, address, err,
			Disabled)
	}
	return listener.Close()
}
