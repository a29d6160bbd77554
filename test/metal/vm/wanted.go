// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
)

// variable is the environment variable by which tests do without virtual machines, where none can run.
const variable = "E2E_METAL_SERVERS"

// instead is what can be done on a machine that cannot run virtual machines.
const instead = "without virtual machines, servers can be containers: `" + variable + "=light make e2e-metal` has only such"

// Wanted tells tests whether they shall boot virtual machines. Whoever does not want them says so by the environment variable
// E2E_METAL_SERVERS, which may be faithful, the default, or light. Anything else is an error.
func Wanted() (bool, error) {
	switch kind := os.Getenv(variable); kind {
	case "", "faithful":
		return true, nil
	case "light":
		return false, nil
	default:
		return false, fmt.Errorf("%s is %q: it must be faithful, which is the default, or light", variable, kind)
	}
}
