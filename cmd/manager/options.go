// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cli"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/machine"
)

type options struct {
	cluster                 cli.Cluster
	startupTimeout          time.Duration
	leaderElect             bool
	leaderElectionNamespace string
	metricsAddress          string
	healthAddress           string
	pprofAddress            string
	topologyLabels          []string
	networkEndpoint         string
	provisioningDeadline    time.Duration
}

func newOptions() *options {
	return &options{
		cluster:                 cli.Cluster{Name: "management cluster", QPS: 500, Burst: 1000},
		startupTimeout:          30 * time.Second,
		leaderElect:             true,
		leaderElectionNamespace: "default",
		metricsAddress:          ":8080",
		healthAddress:           ":8081",
		pprofAddress:            cli.Disabled,
		provisioningDeadline:    machine.DefaultProvisioningDeadline,
		topologyLabels:          []string{v1alpha1.RackLabelKey, v1alpha1.NVLinkDomainLabelKey, v1alpha1.DatacenterLabelKey},
	}
}

func (o *options) addFlags(sections *cliflag.NamedFlagSets) {
	cluster := sections.FlagSet("management cluster")
	o.cluster.AddFlags(cluster)
	cluster.DurationVar(&o.startupTimeout, "startup-timeout", o.startupTimeout,
		"How long to wait at start for an API server that does not answer.")

	leader := sections.FlagSet("leader election")
	leader.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect,
		"Work only while holding the lease, so that several replicas can run.")
	leader.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", o.leaderElectionNamespace,
		"Namespace of the lease.")

	serving := sections.FlagSet("serving")
	serving.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress,
		"Address that /metrics is served on, without encryption. \"0\" does without.")
	serving.StringVar(&o.healthAddress, "health-probe-bind-address", o.healthAddress,
		"Address that /healthz and /readyz are served on. \"0\" does without.")
	serving.StringVar(&o.pprofAddress, "pprof-bind-address", o.pprofAddress,
		"Address that Go's profiles are served on, under /debug/pprof, for example 127.0.0.1:6060. \"0\" does without.")

	inventory := sections.FlagSet("inventory")
	inventory.StringSliceVar(&o.topologyLabels, "topology-labels", o.topologyLabels,
		"Labels of BareMetalHosts that their nodes inherit and that pods can select on.")

	machines := sections.FlagSet("machines")
	machines.DurationVar(&o.provisioningDeadline, "provisioning-deadline", o.provisioningDeadline,
		"How long a Machine may go without any progress before it is given up, if its NodeType has no provisioningDeadline.")

	network := sections.FlagSet("network")
	network.StringVar(&o.networkEndpoint, "network-endpoint", o.networkEndpoint,
		"URL of the HTTP endpoint that moves servers into the networks of their tenants and back (see pkg/network). "+
			"Unset leaves that to another controller; tenants without a spec.network need none.")
}
