// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/karpenter/pkg/events"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/autonodes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/draining"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/heartbeat"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/joining"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/kubernetesversion"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/nodeclaimstatus"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/nodeclass"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/nodeprofiles"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/protection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/repairs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/traces"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/unschedulable"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tracing"
)

// provisioningControllers returns core's controllers and our controllers that let servers join the tenant.
func (o *options) provisioningControllers(
	ctx context.Context, realClock clock.Clock, mgr manager.Manager, management cluster.Cluster, clusters tenant.Clusters,
	recorder events.Recorder,
) ([]controller.Controller, error) {
	catalog := instancetypes.NewCatalog(o.podsPerNode)
	servers, err := cloudprovider.NewManagement(ctx, management.GetCache(), management.GetClient(), management.GetAPIReader(), catalog)
	if err != nil {
		return nil, err
	}
	version, err := kubernetesversion.NewController(realClock, clusters, mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	metal3 := cloudprovider.New(mgr.GetClient(), mgr.GetAPIReader(), servers, recorder, realClock, cloudprovider.Options{
		Namespace: o.namespace, TenantCluster: o.tenantCluster, ClaimTimeout: o.claimTimeout,
		RebootConditions: o.rebootConditions, LegacyRepair: karpenteroptions.FromContext(ctx).LegacyNodeRepair,
		FaultToleration: o.faultToleration, KubernetesVersion: version.Least,
	})
	if err := errors.Join(
		mgr.AddReadyzCheck(managementName, func(*http.Request) error { return servers.Synced() }),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return catalog.UntilNewLabels(ctx, realClock) })),
		metal3.Watch(ctx, mgr.GetCache(), management.GetCache()),
	); err != nil {
		return nil, fmt.Errorf("adding a readiness check, the comparison of labels and the watches of refusals, %w", err)
	}
	core, err := karpenter.Install(ctx, karpenter.Dependencies{
		Manager: mgr, Clusters: clusters, Servers: metal3, Management: servers, Recorder: recorder, Clock: realClock,
		LaunchTimeout: o.launchTimeout, GangIdleDuration: o.gangIdle, Enabled: o.gates.Enabled,
	})
	if err != nil {
		return nil, err
	}
	if o.tracingEndpoint != "" {
		tracer, err := tracing.New(ctx, o.tracingEndpoint, "provider")
		if err != nil {
			return nil, err
		}
		core.Controllers = append(core.Controllers, traces.NewWatcher(tracer, realClock, o.namespace))
	}
	return append(core.Controllers,
		cloudprovider.NewMetrics(metal3),
		joining.NewController(realClock, clusters, joining.ClusterCA(clusters.Tenant.Live, mgr.GetConfig()), version.Least),
		version,
		heartbeat.NewController(realClock, clusters),
		draining.NewController(realClock, clusters),
		garbagecollection.NewMachineController(realClock, clusters),
		garbagecollection.NewLeftoverController(clusters),
		garbagecollection.NewNodeClaimController(clusters, recorder),
		garbagecollection.NewNodeController(clusters),
		nodeclaimstatus.NewController(realClock, clusters, recorder, o.resourcesGrace),
		nodeprofiles.NewController(clusters, recorder),
		repairs.NewController(realClock, clusters, recorder, o.repairLabels),
		nodeclass.NewController(realClock, clusters, recorder),
		protection.NewPoolController(clusters, o.trustedUsers),
		autonodes.NewController(realClock, clusters, catalog, servers),
		unschedulable.NewNodePoolController(core.CloudProvider, metal3.Meets, recorder),
		unschedulable.NewPodController(clusters, recorder, core.Planned, metal3.Checks(core, core.Cluster.GetDaemonSetPod)...),
	), nil
}
