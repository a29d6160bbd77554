// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs in the management cluster. It turns NodeProviders into NodeTypes, counts servers, and takes
// Machines through their life. Only the manager writes to BareMetalHosts, and it touches no tenant cluster. It also
// makes the certificates of the webhook.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/machine"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/metrics"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/network"
	nodetypeprovider "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodeprovider"
	nodetypestatus "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodetype"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/tenantcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/traces"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	fleetusage "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory/feed"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tracing"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/certs"
)

// name is the name of the binary, of its user agent, of its lease and of the source of its events.
const name = "karpenter-metal3-manager"

func main() {
	os.Exit(operator.Run(newCommand(os.Stdout)))
}

// newCommand returns the manager's command and its subcommand "preflight", which prints a table to out.
func newCommand(out io.Writer) *cobra.Command {
	o := newOptions()
	command := operator.NewCommand(operator.Command{
		Name:  name,
		Short: "Claims bare-metal servers for Machines",
		Long: "The manager runs in the management cluster, where Metal3 lives. It makes NodeTypes of NodeProviders, keeps count of\n" +
			"the servers of each type, claims servers for Machines, has Metal3 provision them, and releases them clean.\n\n" +
			"'manager preflight' does none of this: it checks whether the cluster has what the manager needs, and ends. See\n" +
			"'manager preflight --help'.",
		Flags: o.addFlags,
		Run:   func(ctx context.Context) error { return run(ctx, o) },
	})
	command.CompletionOptions.DisableDefaultCmd = true
	command.AddCommand(newPreflightCommand(out))
	return command
}

func run(ctx context.Context, o *options) error {
	mapping, err := topology.Parse(o.topologyLabels)
	if err := errors.Join(o.process.Validate(), tracing.CheckFlag(o.tracingEndpoint), err,
		operator.CheckNotNegative("usage-retention", o.usageRetention),
		operator.CheckNotNegative("unused-claims-per-hour", int64(o.unusedClaimsPerHour)),
		operator.CheckPositive("provisioning-deadline", o.provisioningDeadline),
		operator.CheckPositive("ephemeral-storage", o.ephemeralStorage.Value()), o.certificates.complete()); err != nil {
		return err
	}
	ctx, config, err := o.cluster.RESTConfig(ctx, name)
	if err != nil {
		return err
	}
	kinds := operator.ManagementKinds("NodeProvider", "NodeType", "Machine", "NodeProfile", "OSImage", "SSHKey",
		"MachineConfigTemplate", "IPAddress", "HostUsage", "TenantCluster")
	if err := o.process.Preflight(ctx, config, o.cluster.Name, kinds...); err != nil {
		return err
	}
	lease := &operator.Lease{Config: config, Namespace: o.leaderElectionNamespace, Name: name}
	rights := operator.NewRights()
	cached := map[client.Object]cache.ByObject{
		&bmov1alpha1.BareMetalHost{}: feed.Hosts(config),
		&v1alpha1.HostUsage{}:        {Transform: operator.TrimAlso(usage.Trim)},
	}
	if o.certificates.rotation {
		maps.Copy(cached, certs.Cached(o.certificates.secret, o.certificates.configuration))
	}
	mgr, err := o.process.NewManager(config, manager.Options{
		Scheme: operator.ManagementScheme(),
		Cache:  cache.Options{DefaultWatchErrorHandler: rights.Handler(o.cluster.Name, config), ByObject: cached},
	}, lease)
	if err != nil {
		return err
	}
	if err := register(ctx, mgr, o, mapping); err != nil {
		return err
	}
	if err := rights.Start(ctx, mgr); err != nil {
		return fmt.Errorf("running the manager, %w", err)
	}
	return nil
}

func register(ctx context.Context, mgr manager.Manager, o *options, mapping topology.Mapping) error {
	hosts := inventory.NewInventory(inventory.Options{Topology: &mapping})
	if err := mgr.Add(feed.New(mgr.GetCache(), hosts)); err != nil {
		return fmt.Errorf("feeding the inventory, %w", err)
	}
	policies, err := policy.Names()
	if err != nil {
		return err
	}
	addresses := ipam.Allocator{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	recorder, now := mgr.GetEventRecorder(name), clock.RealClock{}
	record := usage.Record{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: fleetusage.NewClock(now), Retention: o.usageRetention,
		Written: metrics.NewUsageWritten()}
	machines := machine.New(machine.Dependencies{
		Client:    mgr.GetClient(),
		Live:      mgr.GetAPIReader(),
		Inventory: hosts,
		Recorder:  recorder,
		Clock:     now,
		Deadline:  o.provisioningDeadline,
		Record:    record,
		Hooks:     o.hooks,

		UnusedClaimsPerHour: o.unusedClaimsPerHour,
	})
	controllers := []interface {
		Register(context.Context, manager.Manager) error
	}{
		nodetypeprovider.NewController(mgr.GetClient(), mgr.GetAPIReader(), hosts, recorder, now),
		nodetypestatus.NewController(mgr.GetClient(), hosts, recorder, now, o.ephemeralStorage.Quantity),
		machines,
		&usage.Controller{Record: record, Delay: usage.DefaultDelay},
		tenantcluster.NewController(mgr.GetClient(), mgr.GetAPIReader(), recorder, now),
		ipam.NewSweep(addresses, machine.HoldsServer(mgr.GetAPIReader())),
		metrics.NewFleet(hosts, now),
		metrics.NewPolicies(mgr.GetAPIReader(), policies),
	}
	if o.networkEndpoint != "" || o.networkCredentials != "" {
		endpoint, err := network.NewHTTPEndpoint(o.networkEndpoint, o.networkCredentials)
		if err != nil {
			return fmt.Errorf("flags --network-endpoint and --network-endpoint-credentials, %w", err)
		}
		controllers = append(controllers, network.NewController(mgr.GetClient(), mgr.GetAPIReader(), endpoint, mapping))
	}
	if o.tracingEndpoint != "" {
		tracer, err := tracing.New(ctx, o.tracingEndpoint, "manager")
		if err != nil {
			return err
		}
		controllers = append(controllers, traces.NewWatcher(tracer))
	}
	if c := o.certificates; c.rotation {
		controllers = append(controllers, certs.NewRotator(mgr.GetClient(), mgr.GetAPIReader(), now, c.secret, c.configuration, c.settings))
	}
	for _, controller := range controllers {
		if err := controller.Register(ctx, mgr); err != nil {
			return fmt.Errorf("setting up controllers, %w", err)
		}
	}
	if err := watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	return logPreflight(mgr)
}

// watch starts all informers at once. Controllers start theirs only when this replica becomes the leader: it would
// then read every object before its first claim.
func watch(ctx context.Context, caches cache.Cache) error {
	for _, kind := range []client.Object{&bmov1alpha1.BareMetalHost{}, &v1alpha1.Machine{}, &v1alpha1.NodeProvider{}, &v1alpha1.NodeType{},
		&v1alpha1.NodeProfile{}, &v1alpha1.OSImage{}, &v1alpha1.SSHKey{}, &v1alpha1.MachineConfigTemplate{}, &v1alpha1.IPAddress{},
		&v1alpha1.HostUsage{}, &v1alpha1.TenantCluster{}, kube.NamespaceMetadata(), &resourcev1.DeviceClass{}} {
		// Kubernetes before 1.34 does not serve DeviceClasses.
		if _, err := caches.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("watching %T, %w", kind, err)
		}
	}
	return nil
}
