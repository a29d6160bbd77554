// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command karpenter-metal3-provider is Karpenter for one tenant: its core watches the tenant cluster, and its
// NodeClaims become Machines in the tenant's namespace of the management cluster. This package has only flags and
// wiring.
package main

import (
	"os"
	"runtime/debug"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

// garbage is the default of GOGC: how much garbage starts a collection, in percent of the memory in use. There is a
// provider for each tenant; most are idle, and an idle provider has little to collect.
const garbage = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	options := defaultOptions()
	command := operator.NewCommand(operator.Command{
		Name:  name,
		Short: "Give the pending pods of a tenant cluster bare-metal servers.",
		Long: "Karpenter for bare metal, for one tenant. It watches the pods of the tenant cluster and asks for servers by making Machines " +
			"in the tenant's namespace of the management cluster, where karpenter-metal3-manager claims them.",
		Flags: options.addFlags,
		Run:   options.run,
	})
	os.Exit(operator.Run(command))
}
