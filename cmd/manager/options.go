// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/machine"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator/callers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tracing"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/certs"
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
	tracingEndpoint         string
	certificates            certificates
}

// certificates are the flags for the webhook's certificates.
type certificates struct {
	rotation      bool
	secret        types.NamespacedName
	service       string
	configuration string
	settings      certs.Settings
}

// newOptions sets a shorter lease than other programs have: while no manager works, no tenant gets a server. Another
// replica looks at the lease at least every 2.2 retry periods and then knows when it was last renewed, so it takes
// over within 17 s.
func newOptions() *options {
	o := &options{
		cluster:                 operator.Cluster{Name: "management cluster", QPS: 500, Burst: 1000},
		process:                 operator.DefaultOptions(callers.Review),
		leaderElectionNamespace: "default",
		provisioningDeadline:    machine.DefaultProvisioningDeadline,
		usageRetention:          usage.DefaultRetention,
		unusedClaimsPerHour:     machine.DefaultUnusedClaimsPerHour,
		ephemeralStorage:        resource.QuantityValue{Quantity: *resource.NewQuantity(capacity.DefaultEphemeralStorage, resource.BinarySI)},
		topologyLabels:          topology.Defaults(),
		certificates: certificates{
			secret:  types.NamespacedName{Namespace: "default", Name: certs.SecretName},
			service: "karpenter-metal3-webhook", configuration: webhook.ConfigurationName, settings: certs.DefaultSettings(),
		},
	}
	leader := o.process.LeaderElection
	leader.LeaseDuration, leader.RenewDeadline, leader.RetryPeriod = 12*time.Second, 8*time.Second, time.Second
	return o
}

func (o *options) addFlags(sections *cliflag.NamedFlagSets) {
	o.cluster.AddFlags(sections.FlagSet("management cluster"))
	o.process.AddFlags(sections)
	tracing.AddFlag(sections.FlagSet("process"), &o.tracingEndpoint)
	sections.FlagSet("leader election").StringVar(&o.leaderElectionNamespace, "leader-election-namespace", o.leaderElectionNamespace,
		"Namespace of the lease.")

	inventory := sections.FlagSet("inventory")
	inventory.StringSliceVar(&o.topologyLabels, "topology-labels", o.topologyLabels, topology.Usage)
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

	o.certificates.addFlags(sections.FlagSet("certificates of the webhook"))
}

func (c *certificates) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&c.rotation, "webhook-cert-rotation", c.rotation,
		"Make certificates for the webhook, keep them in a Secret that it reads, renew them in time and write their CA bundle to the webhook "+
			"configurations. Needs the rights in config/rbac/manager-webhook.yaml. Leave it off where there is no webhook, or where another "+
			"program, such as cert-manager, does this.")
	flags.StringVar(&c.secret.Namespace, "webhook-namespace", c.secret.Namespace,
		"Namespace of the webhook, and of the Secret with its certificates.")
	flags.StringVar(&c.secret.Name, "webhook-cert-secret", c.secret.Name, "Name of the Secret with the certificates.")
	flags.StringVar(&c.service, "webhook-service", c.service, "Name of the Service in front of the webhook, for the names in the certificate.")
	flags.StringSliceVar(&c.settings.Names, "webhook-cert-names", c.settings.Names,
		"DNS names and IP addresses by which the API server reaches the webhook. If unset, those of the Service.")
	flags.StringVar(&c.configuration, "webhook-configuration", c.configuration,
		"Name of the ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration that are to trust the certificates.")
	flags.DurationVar(&c.settings.Lifetime, "webhook-cert-lifetime", c.settings.Lifetime,
		"How long a certificate is valid. It is renewed when two thirds of that are over.")
	flags.DurationVar(&c.settings.AuthorityLifetime, "webhook-ca-lifetime", c.settings.AuthorityLifetime,
		"How long a certificate authority is valid. It is renewed when two thirds of that are over.")
	flags.DurationVar(&c.settings.Settle, "webhook-ca-settle", c.settings.Settle,
		"How long a new certificate authority is made known before it signs anything: how long an API server may take to hear of it.")
}

// complete checks the flags and derives the remaining fields from them.
func (c *certificates) complete() error {
	if !c.rotation {
		return nil
	}
	if len(c.settings.Names) == 0 {
		inNamespace := c.service + "." + c.secret.Namespace + ".svc"
		c.settings.Names = []string{inNamespace, inNamespace + ".cluster.local"}
	}
	return errors.Join(
		operator.CheckSet("webhook-namespace", c.secret.Namespace),
		operator.CheckSet("webhook-cert-secret", c.secret.Name),
		operator.CheckSet("webhook-service", c.service),
		operator.CheckSet("webhook-configuration", c.configuration),
		operator.CheckPositive("webhook-cert-lifetime", c.settings.Lifetime),
		operator.CheckPositive("webhook-ca-lifetime", c.settings.AuthorityLifetime),
		operator.CheckPositive("webhook-ca-settle", c.settings.Settle),
	)
}
