// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
)

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
