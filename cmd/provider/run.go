// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/awslabs/operatorpkg/controller"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	cloudprovidermetrics "sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	staticprovisioning "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	"sigs.k8s.io/karpenter/pkg/events"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/accelerators"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cli"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/gangs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/reservations"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/resourceclaims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/advertised"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/autonodes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/drift"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/garbagecollection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/joining"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/nodeclass"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/pendingpods"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/poolcheck"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/progress"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/protection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/rollout"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant/staticpools"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/timelimits"
)

// run wires core, our CloudProvider and the tenant's controllers to the two clusters and works until the context ends.
func (o *options) run(ctx context.Context) error {
	karpenter, err := o.complete()
	if err != nil {
		return err
	}
	ctx = karpenter.ToContext(ctx)
	lifecycle.LaunchTimeout = o.launchTimeout

	tenantConfig, err := o.tenant.RESTConfig(name)
	if err != nil {
		return err
	}
	managementConfig, err := o.management.RESTConfig(name)
	if err != nil {
		return err
	}
	if err := o.preflight(ctx, tenantConfig, managementConfig, karpenter); err != nil {
		return err
	}
	// Core asks client-go's scheme for the group and kind of the NodeClass, so all that is here uses that scheme.
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return fmt.Errorf("adding our kinds to client-go's scheme, %w", err)
	}
	if o.runs(karpenterControllers) {
		if err := o.registerLabels(ctx, managementConfig); err != nil {
			return err
		}
	}

	mgr, err := o.newManager(ctx, tenantConfig, managementConfig)
	if err != nil {
		return err
	}
	management, err := o.newManagementCluster(managementConfig)
	if err != nil {
		return err
	}
	if err := mgr.Add(management); err != nil {
		return fmt.Errorf("adding the management cluster, %w", err)
	}
	all, err := o.all(ctx, mgr, management)
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := c.Register(ctx, mgr); err != nil {
			return fmt.Errorf("registering a controller, %w", err)
		}
	}
	log.FromContext(ctx).Info("Starting", "controllers", o.controllers, "tenantCluster", o.tenantClusterKey(), "tenant", tenantConfig.Host, "management", managementConfig.Host)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers, %w", err)
	}
	return nil
}

// newManager returns the manager of the tenant cluster, which everything runs under.
func (o *options) newManager(ctx context.Context, tenantConfig, managementConfig *rest.Config) (manager.Manager, error) {
	managerOptions := ctrl.Options{
		Scheme: scheme.Scheme,
		Logger: log.FromContext(ctx),
		// Core finds its settings in the context.
		BaseContext:                   func() context.Context { return context.WithoutCancel(ctx) },
		Cache:                         cache.Options{DefaultTransform: cli.TrimObject},
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.healthAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionReleaseOnCancel: true, // the process ends when Start returns
	}
	if o.leaderElect {
		lock, err := cli.NewLeaderLock(managementConfig, o.namespace, o.leaseName())
		if err != nil {
			return nil, err
		}
		managerOptions.LeaderElectionResourceLockInterface = lock
		managerOptions.LeaseDuration, managerOptions.RenewDeadline, managerOptions.RetryPeriod =
			ptr.To(cli.LeaseDuration), ptr.To(cli.LeaseRenewDeadline), ptr.To(cli.LeaseRetryPeriod)
	}
	mgr, err := ctrl.NewManager(tenantConfig, managerOptions)
	if err != nil {
		return nil, fmt.Errorf("setting up the %s, %w", tenantName, err)
	}
	if o.runs(karpenterControllers) {
		if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
			return nil, err
		}
		if !karpenteroptions.FromContext(ctx).IgnoreDRARequests {
			if err := watchDynamicResources(ctx, mgr.GetCache()); err != nil {
				return nil, err
			}
		}
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding a health check, %w", err)
	}
	if err := mgr.AddReadyzCheck(tenantName, cli.CacheSynced(mgr.GetCache())); err != nil {
		return nil, fmt.Errorf("adding a readiness check, %w", err)
	}
	return mgr, nil
}

// newManagementCluster returns the management cluster as this tenant may see it: its own namespace, and the kinds that
// have none.
func (o *options) newManagementCluster(config *rest.Config) (cluster.Cluster, error) {
	management, err := cluster.New(config, func(options *cluster.Options) {
		options.Scheme = scheme.Scheme
		options.Cache.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
		options.Cache.DefaultTransform = cli.TrimObject
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the %s, %w", managementName, err)
	}
	return management, nil
}

// all are the controllers that are to run.
func (o *options) all(ctx context.Context, mgr manager.Manager, management cluster.Cluster) ([]controller.Controller, error) {
	realClock := clock.RealClock{}
	//lint:ignore SA1019 core's recorder takes no other
	recorder := events.NewRecorder(mgr.GetEventRecorderFor(name))
	planes := tenant.Planes{TenantCluster: o.tenantClusterKey(), Tenant: tenant.PlaneOf(mgr), Management: tenant.PlaneOf(management)}
	var all []controller.Controller
	if o.runs(karpenterControllers) {
		karpenter, err := o.karpenters(ctx, realClock, mgr, management, planes, recorder)
		if err != nil {
			return nil, err
		}
		all = append(all, karpenter...)
	} else if err := mgr.AddReadyzCheck(managementName, cli.CacheSynced(management.GetCache())); err != nil {
		return nil, fmt.Errorf("adding a readiness check, %w", err)
	}
	if o.runs(draControllers) {
		all = append(all, dra.Controllers(planes, realClock, recorder, protection.NewDeviceClassController(planes, o.trustedUsers))...)
	}
	return all, nil
}

// karpenters are core's controllers and those that let servers join the tenant.
func (o *options) karpenters(ctx context.Context, realClock clock.Clock, mgr manager.Manager, management cluster.Cluster, planes tenant.Planes, recorder events.Recorder) ([]controller.Controller, error) {
	catalog := instancetypes.NewCatalog(o.instanceTypes)
	servers, err := cloudprovider.NewManagement(ctx, management.GetCache(), management.GetClient(), management.GetAPIReader(), catalog)
	if err != nil {
		return nil, err
	}
	if err := mgr.AddReadyzCheck(managementName, func(*http.Request) error { return servers.Synced() }); err != nil {
		return nil, fmt.Errorf("adding a readiness check, %w", err)
	}
	metal3 := cloudprovider.New(mgr.GetClient(), servers, recorder, realClock, cloudprovider.Options{
		Namespace: o.namespace, TenantCluster: o.tenantCluster, ClaimTimeout: o.claimTimeout,
	})
	measured := cloudprovidermetrics.Decorate(metal3)

	// Core alone gets the client that keeps pods off servers with accelerators and gangs in one place, and shows claims in
	// its way: it writes neither pods nor claims back.
	var clusterState *state.Cluster
	pods := gangs.New(accelerators.KeepPodsOff(resourceclaims.ForCore(reservations.KeepOut(mgr.GetClient()))), gangs.Options{
		Rooms:       metal3.Rooms,
		Use:         func(labels []string) { catalog.Use(labels, realClock.Now()) },
		NodeClaimOf: func(pod types.NamespacedName) string { return clusterState.PodNodeClaimMapping(pod) },
	})
	overlays := nodeoverlay.NewInstanceTypeStore()
	overlaid := rollout.WithReleased(overlay.Decorate(measured, pods, overlays))
	clusterState = state.NewCluster(realClock, pods, overlaid)
	all := controllers.NewControllers(ctx, mgr, realClock, pods, recorder, overlaid, measured, clusterState, overlays)
	for i := range all {
		if core, ok := all[i].(*staticprovisioning.Controller); ok {
			all[i] = staticpools.NewController(staticpools.Dependencies{
				Core: core, Tenant: mgr.GetClient(), Servers: metal3, CloudProvider: overlaid, OnChange: catalog.OnChange, Recorder: recorder, Clock: realClock,
				Nodes: func(nodePool string) (running, replaced int) {
					running, _, replaced = clusterState.NodePoolState.GetNodeCount(nodePool)
					return running, replaced
				},
			})
		}
	}
	all, err = rollout.Replace(all, rollout.Dependencies{
		Client: pods, Planes: planes, Cluster: clusterState, CloudProvider: overlaid, Refusals: metal3, Recorder: recorder, Clock: realClock,
	})
	if err != nil {
		return nil, err
	}
	all, err = timelimits.Teach(all, realClock, timelimits.Machines{Client: management.GetClient(), Namespace: o.namespace, Synced: servers.Synced})
	if err != nil {
		return nil, err
	}

	return append(all,
		drift.NewController(planes, recorder),
		joining.NewController(realClock, planes, joining.ClusterCA(planes.Tenant.Live, mgr.GetConfig()), joining.ServerVersion(mgr.GetConfig())),
		garbagecollection.NewMachineController(planes),
		garbagecollection.NewLeftoverController(planes),
		garbagecollection.NewNodeClaimController(planes, recorder),
		garbagecollection.NewNodeController(planes),
		progress.NewController(realClock, planes, recorder),
		advertised.NewController(realClock, planes, recorder, o.resourcesGrace),
		nodeclass.NewController(realClock, planes, recorder),
		protection.NewPoolController(planes, o.trustedUsers),
		autonodes.NewController(realClock, planes, catalog, servers, o.instanceTypes.CapacityType),
		poolcheck.NewController(overlaid, o.instanceTypes.CapacityType, metal3.Meets, recorder),
		pendingpods.NewController(planes, recorder, func(pod types.NamespacedName) bool {
			return clusterState.PodNodeClaimMapping(pod) != ""
		}, func(ctx context.Context, pod *corev1.Pod) (pendingpods.Explanation, error) {
			reached, err := metal3.QuotaReached(ctx, pod)
			return explanation(pendingpods.ReasonQuotaReached, reached), err
		}, func(_ context.Context, pod *corev1.Pod) (pendingpods.Explanation, error) {
			return explanation(pendingpods.ReasonNoRoomTogether, pods.Shortage(pod)), nil
		}),
	), nil
}

// explanation for a pod, if there is anything to explain.
func explanation(reason, message string) pendingpods.Explanation {
	if message == "" {
		return pendingpods.Explanation{}
	}
	return pendingpods.Explanation{Reason: reason, Message: message}
}
