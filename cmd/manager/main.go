// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager runs in the management cluster. It turns NodeProviders into NodeTypes, counts servers, and takes
// Machines through their life. It is the only one that writes on BareMetalHosts, and it touches no tenant cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cli"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/machine"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/metrics"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/network"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/nodetype/estimate"
	nodetypeprovider "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/nodetype/provider"
	nodetypestatus "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/nodetype/status"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenantcluster"
)

// name of the binary, of its user agent, of its lease, and of the source of its events.
const name = "karpenter-metal3-manager"

func main() {
	o := newOptions()
	os.Exit(cli.Run(cli.NewCommand(cli.Command{
		Name:  name,
		Short: "Claims bare-metal servers for Machines",
		Long: "The manager runs in the management cluster, where Metal3 lives. It makes NodeTypes of NodeProviders, keeps count of\n" +
			"the servers of each type, claims servers for Machines, has Metal3 provision them, and gives them back clean.",
		Flags: o.addFlags,
		Run:   func(ctx context.Context) error { return run(ctx, o) },
	})))
}

func run(ctx context.Context, o *options) error {
	config, err := o.cluster.RESTConfig(name)
	if err != nil {
		return err
	}
	for flag, address := range map[string]string{"metrics-bind-address": o.metricsAddress, "health-probe-bind-address": o.healthAddress, "pprof-bind-address": o.pprofAddress} {
		if err := cli.CheckAddress(flag, address); err != nil {
			return err
		}
	}
	if o.provisioningDeadline <= 0 {
		return fmt.Errorf("--provisioning-deadline is %v: it must be greater than zero", o.provisioningDeadline)
	}
	if err := cli.WaitForAPI(ctx, config, o.cluster.Name, o.startupTimeout); err != nil {
		return err
	}
	if err := cli.RequireKinds(config, o.cluster.Name, requiredKinds()...); err != nil {
		return err
	}
	mgr, err := newManager(config, o)
	if err != nil {
		return err
	}
	if err := register(ctx, mgr, o); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager, %w", err)
	}
	return nil
}

func requiredKinds() []cli.Kind {
	kinds := []cli.Kind{{
		GroupVersionKind: bmov1alpha1.GroupVersion.WithKind("BareMetalHost"),
		Remedy:           "install baremetal-operator's CRDs",
	}}
	for _, kind := range []string{"NodeProvider", "NodeType", "Machine", "OSImage", "SSHKey", "MachineConfigTemplate", "IPAddress", "TenantCluster"} {
		kinds = append(kinds, cli.Kind{
			GroupVersionKind: v1alpha1.GroupVersion.WithKind(kind),
			Remedy:           "install this project's CRDs (pkg/apis/crds)",
		})
	}
	return kinds
}

func newManager(config *rest.Config, o *options) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(bmov1alpha1.AddToScheme(scheme))

	managerOptions := manager.Options{
		Scheme:                        scheme,
		Cache:                         cache.Options{DefaultTransform: cli.TrimObject},
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.healthAddress,
		PprofBindAddress:              o.pprofAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionReleaseOnCancel: true, // the process ends when Start returns
	}
	if o.leaderElect {
		lock, err := cli.NewLeaderLock(config, o.leaderElectionNamespace, name)
		if err != nil {
			return nil, err
		}
		managerOptions.LeaderElectionResourceLockInterface = lock
		managerOptions.LeaseDuration, managerOptions.RenewDeadline, managerOptions.RetryPeriod =
			ptr.To(cli.LeaseDuration), ptr.To(cli.LeaseRenewDeadline), ptr.To(cli.LeaseRetryPeriod)
	}
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return nil, fmt.Errorf("setting up the manager, %w", err)
	}
	synced := cli.CacheSynced(mgr.GetCache())
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", synced)); err != nil {
		return nil, fmt.Errorf("setting up the probes, %w", err)
	}
	return mgr, nil
}

func register(ctx context.Context, mgr manager.Manager, o *options) error {
	inventory := hosts.NewInventory(hosts.Options{TopologyLabels: o.topologyLabels})
	if err := mgr.Add(hosts.NewFeed(mgr.GetCache(), inventory)); err != nil {
		return fmt.Errorf("feeding the inventory, %w", err)
	}
	addresses := ipam.Allocator{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
	recorder, now := mgr.GetEventRecorder(name), clock.RealClock{}
	machines := machine.New(machine.Dependencies{
		Client:    mgr.GetClient(),
		Live:      mgr.GetAPIReader(),
		Claims:    machine.NewClaims(mgr.GetClient(), mgr.GetAPIReader()),
		Addresses: addresses,
		Inventory: inventory,
		Recorder:  recorder,
		Clock:     now,
		Deadline:  o.provisioningDeadline,
	})
	controllers := []interface {
		Register(context.Context, manager.Manager) error
	}{
		nodetypeprovider.NewController(mgr.GetClient(), mgr.GetAPIReader(), recorder, now),
		nodetypestatus.NewController(mgr.GetClient(), inventory, recorder, now),
		estimate.NewController(mgr.GetClient(), now),
		machines,
		tenantcluster.NewController(mgr.GetClient(), mgr.GetAPIReader(), now),
		ipam.NewSweep(addresses, machine.HoldsServer(mgr.GetAPIReader())),
		metrics.NewFleet(inventory, now),
	}
	if o.networkEndpoint != "" {
		endpoint, err := network.NewHTTPEndpoint(o.networkEndpoint)
		if err != nil {
			return fmt.Errorf("flag --network-endpoint, %w", err)
		}
		controllers = append(controllers, network.NewController(mgr.GetClient(), mgr.GetAPIReader(), endpoint))
	}
	for _, controller := range controllers {
		if err := controller.Register(ctx, mgr); err != nil {
			return fmt.Errorf("setting up controllers, %w", err)
		}
	}
	return nil
}
