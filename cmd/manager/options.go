// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/machine"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
)

type options struct {
	cluster                 operator.Cluster
	process                 operator.Options
	leaderElectionNamespace string
	topologyLabels          []string
	networkEndpoint         string
	networkCredentials      string
	ephemeralStorage        resource.QuantityValue
	provisioningDeadline    time.Duration
	hooks                   []string
	usageRetention          time.Duration
	unusedClaimsPerHour     int
}

func newOptions() *options {
	return &options{
		cluster:                 operator.Cluster{Name: "management cluster", QPS: 500, Burst: 1000},
		process:                 operator.DefaultOptions(),
		leaderElectionNamespace: "default",
		provisioningDeadline:    machine.DefaultProvisioningDeadline,
		usageRetention:          usage.DefaultRetention,
		unusedClaimsPerHour:     machine.DefaultUnusedClaimsPerHour,
		ephemeralStorage:        resource.QuantityValue{Quantity: *resource.NewQuantity(capacity.DefaultEphemeralStorage, resource.BinarySI)},
		topologyLabels:          topology.Defaults(),
	}
}

func (o *options) addFlags(sections *cliflag.NamedFlagSets) {
	o.cluster.AddFlags(sections.FlagSet("management cluster"))
	o.process.AddFlags(sections)
	sections.FlagSet("leader election").StringVar(&o.leaderElectionNamespace, "leader-election-namespace", o.leaderElectionNamespace,
		"Namespace of the lease.")

	inventory := sections.FlagSet("inventory")
	inventory.StringSliceVar(&o.topologyLabels, "topology-labels", o.topologyLabels,
		topology.Usage)
	inventory.Var(&o.ephemeralStorage, "ephemeral-storage",
		"Disk that a node is planned with if neither its NodeType has the resource ephemeral-storage nor Metal3 has inspected a server of it.")

	machines := sections.FlagSet("machines")
	machines.DurationVar(&o.provisioningDeadline, "provisioning-deadline", o.provisioningDeadline,
		"How long a Machine may go without any progress before it is given up, if its NodeType has no provisioningDeadline.")
	machines.StringSliceVar(&o.hooks, "hooks", o.hooks,
		"Names of the hooks of your own controllers that hold a server, beside tenant-network. Others in the annotations of Machines hold "+
			"nothing: a tenant's provider can write them.")

	machines.DurationVar(&o.usageRetention, "usage-retention", o.usageRetention,
		"How long HostUsages keep who had a server, after the end of the use (docs/usage.md). With 0 nothing is recorded, and what was "+
			"recorded is deleted.")

	machines.IntVar(&o.unusedClaimsPerHour, "unused-claims-per-hour", o.unusedClaimsPerHour,
		"How many servers a namespace gets in an hour after it has claimed two times the servers that it may have, and at least 100, and has "+
			"given them back before they were installed. With 0 there is no bound.")

	network := sections.FlagSet("network")
	network.StringVar(&o.networkEndpoint, "network-endpoint", o.networkEndpoint,
		"URL of the HTTP endpoint that moves servers into the networks of their tenants and back (docs/network.md). "+
			"Unset leaves that to another controller; tenants without a spec.network need none.")
	network.StringVar(&o.networkCredentials, "network-endpoint-credentials", o.networkCredentials,
		"Directory with the credentials for an https --network-endpoint, as of a Secret: the file token is sent as a bearer token, and "+
			"read again for each request; ca.crt has the authorities of the endpoint's certificate. One of them may be missing.")
}
