// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command webhook runs in the management cluster and writes nothing. It validates NodeProviders, NodeTypes, Machines,
// TenantClusters, NodeProfiles, OSImages, SSHKeys and MachineConfigTemplates. In pods that tenants' vClusters create,
// it replaces the names of resource claims by the names that the claims have in the management cluster.
package main

import (
	"context"
	"os"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

// name is the name of the binary and of its user agent.
const name = "karpenter-metal3-webhook"

func main() {
	o := newOptions()
	os.Exit(operator.Run(operator.NewCommand(operator.Command{
		Name:  name,
		Short: "Admits or refuses what is written about bare-metal servers",
		Long: "The webhook runs in the management cluster, in as many replicas as you like. The API server asks it about what is\n" +
			"written: a wrong pin or selector is refused at once, and not found out 20 minutes later. It is also asked about the\n" +
			"pods with claims that the vCluster of a tenant creates there: they get the names of the claims on the host.",
		Flags: o.addFlags,
		Run:   func(ctx context.Context) error { return run(ctx, o) },
	})))
}
