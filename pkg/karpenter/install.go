// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package karpenter installs Karpenter's core with the changes that finite, slow hardware needs. README.md lists them:
// what core lacks, the upstream issue, and when the change can be removed.
package karpenter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/controller"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	cloudprovidermetrics "sigs.k8s.io/karpenter/pkg/cloudprovider/metrics"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	nodehydration "sigs.k8s.io/karpenter/pkg/controllers/node/hydration"
	"sigs.k8s.io/karpenter/pkg/controllers/node/termination"
	"sigs.k8s.io/karpenter/pkg/controllers/node/termination/terminator"
	nodeclaimhydration "sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/hydration"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	staticprovisioning "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/prediction"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/accelerators"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/gangs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/holdback"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/nodeprofiles"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/resourceclaims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/rollout"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/staticpools"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/timelimits"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/workers"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/writes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// Dependencies of core. All are required.
type Dependencies struct {
	// Manager of the tenant cluster.
	Manager    manager.Manager
	Clusters   tenant.Clusters
	Servers    *cloudprovider.CloudProvider
	Management *cloudprovider.Management
	Recorder   events.Recorder
	Clock      clock.Clock
	// LaunchTimeout is how long a NodeClaim may be without a provider ID before it is deleted.
	LaunchTimeout time.Duration
	// GangIdleDuration is how long a gang without a stated size waits for more pods after the last came. Zero: no wait.
	GangIdleDuration time.Duration
	// Enabled reports whether one of Features is on.
	Enabled func(featuregate.Feature) bool
}

// Core is Karpenter's core.
type Core struct {
	Controllers []controller.Controller
	// CloudProvider as core sees it, with NodeOverlays and metrics.
	CloudProvider karpcloudprovider.CloudProvider
	Cluster       *state.Cluster
	Provisioner   *provisioning.Provisioner
	// gangs is nil without GangPlacement.
	gangs *gangs.Placer
	// extended is nil if core plans without devices of DRA drivers.
	extended           *resourceclaims.Extended
	devicesNotDeclared func(context.Context, *corev1.Pod) (string, error)
}

// Install returns core with the changes. It returns an error if core refuses the repair policies, or, perhaps after an
// upgrade, lacks the expected controllers. Core finds its options in the context.
func Install(ctx context.Context, d Dependencies) (*Core, error) {
	lifecycle.LaunchTimeout = d.LaunchTimeout

	tenantClient, overlays := d.Manager.GetClient(), nodeoverlay.NewInstanceTypeStore()
	measured := cloudprovidermetrics.Decorate(d.Servers)
	core := &Core{CloudProvider: overlay.Decorate(measured, tenantClient, overlays)}
	repairs, err := health.NewRepairPolicyMatcher(ctx, core.CloudProvider)
	if err != nil {
		return nil, fmt.Errorf("installing Karpenter's core, %w", err)
	}
	core.Cluster = state.NewCluster(d.Clock, stateClient(tenantClient), core.CloudProvider, state.WithRepairPolicyMatcher(repairs))
	coreClient := interceptor.NewClient(tenantClient, core.interceptors(d, !options.FromContext(ctx).IgnoreDRARequests)...)
	core.Controllers = controllers.NewControllers(ctx, writes.Events(d.Manager), d.Clock, coreClient, d.Recorder, core.CloudProvider, measured,
		core.Cluster, overlays, prediction.NewStore())
	if core.Provisioner, err = find[*provisioning.Provisioner](core.Controllers); err != nil {
		return nil, err
	}
	return core, errors.Join(core.replaceControllers(ctx, d, coreClient), core.limitWorkers())
}

// Plan returns core without controllers, to plan with its Provisioner, and the client that core plans with. That client
// reads the same as with Install. Only Clusters, Servers, Recorder, Clock and Enabled are required. Core finds its
// options in the context.
func Plan(d Dependencies) (*Core, client.Client) {
	core := &Core{CloudProvider: d.Servers, Cluster: state.NewCluster(d.Clock, stateClient(d.Clusters.Tenant.Client), d.Servers)}
	coreClient := interceptor.NewClient(d.Clusters.Tenant.Client, core.interceptors(d, false)...)
	core.Provisioner = provisioning.NewProvisioner(coreClient, d.Recorder, d.Servers, core.Cluster, d.Clock,
		deviceallocation.NewController(coreClient), virtualpods.NewVirtualPodCache(coreClient))
	return core, coreClient
}

func stateClient(tenantClient client.Client) client.Client {
	ofNode, _ := holdback.NominatedPods(tenantClient)
	return interceptor.NewClient(tenantClient, ofNode)
}

// interceptors returns the interceptors for core's client; devices: core plans with devices.
func (c *Core) interceptors(d Dependencies, devices bool) []interceptor.Interceptor {
	tenantClient := d.Clusters.Tenant.Client
	_, nominated := holdback.NominatedPods(tenantClient)
	all := []interceptor.Interceptor{
		interceptor.OnCreate(instancetypes.RemoveReservationIDs),
		interceptor.OnCreate(nodeprofiles.StoredHash),
		interceptor.OnCreate(writes.Finalizer),
		writes.Unchanged(),
		writes.Unknown(),
		nodeprofiles.NodePools(d.Clusters),
		resourceclaims.Claims(tenantClient),
		resourceclaims.ListedClaims(),
	}
	if devices {
		c.extended, c.devicesNotDeclared = resourceclaims.NewExtended(tenantClient, d.Servers.ByDriver), d.Servers.DevicesNotDeclared
		all = append(all, c.extended.Claims(), c.extended.Pods())
	}
	plan := func(ctx context.Context, pods []*corev1.Pod) (scheduling.Results, error) {
		return gangs.Simulation{Provisioner: c.Provisioner, Cluster: c.Cluster, Client: tenantClient, Clock: d.Clock}.Plan(ctx, pods)
	}
	all = append(all,
		holdback.Pods(d.Servers, holdback.Core{Client: tenantClient, Cluster: c.Cluster,
			Provisioner: func() *provisioning.Provisioner { return c.Provisioner }}),
		holdback.ExpectedPods(tenantClient, c.Cluster, func(ctx context.Context) (scheduling.Results, error) {
			pods, err := c.Provisioner.GetPendingPods(ctx)
			if err != nil || len(pods) == 0 {
				return scheduling.Results{}, err
			}
			return plan(ctx, pods)
		}, d.Clock),
		holdback.StartingNodes(tenantClient, d.Clock),
		nominated,
		accelerators.Templates(),
		accelerators.Pods(),
	)
	if d.Enabled(GangPlacement) {
		c.gangs = gangs.NewPlacer(gangs.Dependencies{
			Client: tenantClient, Live: d.Clusters.Tenant.Live, Clock: d.Clock, IdleDuration: d.GangIdleDuration,
			FreeServers: d.Servers.FreeServers, AllServers: d.Servers.AllServers, NodeClaimOf: c.Cluster.PodNodeClaimMapping,
			Plan: plan,
		})
		all = append(all, c.gangs.PendingPods(), interceptor.OnCreate(c.gangs.Mark))
	}
	return all
}

// Planned reports whether core has a NodeClaim for a pod, or plans it with devices of DRA drivers. Then why names the
// servers that core does not use because of these devices.
func (c *Core) Planned(ctx context.Context, pod *corev1.Pod) (planned bool, why explain.Explanation, err error) {
	if c.Cluster.PodNodeClaimMapping(client.ObjectKeyFromObject(pod)) != "" {
		return true, why, nil
	}
	if c.extended == nil {
		return false, why, nil
	}
	seen, err := c.extended.Pod(ctx, pod)
	if err != nil || len(seen.Spec.ResourceClaims) == 0 {
		return false, why, err
	}
	why, err = explain.Because(explain.ReasonDevicesNotDeclared, c.devicesNotDeclared)(ctx, pod)
	return true, why, err
}

// Shortage returns why no topology domain has room for the gang of a pod, "" if one has or there is no gang.
func (c *Core) Shortage(pod *corev1.Pod) string {
	if c.gangs == nil {
		return ""
	}
	return c.gangs.Shortage(pod)
}

// Waits returns why the gang of a pod is not planned yet, "" if the gang is complete or there is none.
func (c *Core) Waits(pod *corev1.Pod) string {
	if c.gangs == nil {
		return ""
	}
	return c.gangs.Waits(pod)
}

// replaceControllers replaces some of core's controllers by controllers of this provider.
func (c *Core) replaceControllers(ctx context.Context, d Dependencies, coreClient client.Client) error {
	if d.Enabled(RolloutWithoutSpare) {
		if err := c.replaceDisruption(ctx, d, coreClient); err != nil {
			return err
		}
	}
	machines := timelimits.Machines{Client: d.Management.Client, Namespace: d.Clusters.TenantCluster.Namespace, Synced: d.Management.Synced}
	var registered []interceptor.Interceptor
	if !options.FromContext(ctx).IgnoreDRARequests {
		registered = append(registered, resourceclaims.Registered(d.Clusters.Tenant.Client))
	}
	if err := replace(c.Controllers, func(core *lifecycle.Controller) controller.Controller {
		// Each of its workers waits at most ten seconds for the claim of a server.
		return workers.Limited(timelimits.Lifecycle(core, d.Clock, machines, registered...), 200)
	}); err != nil {
		return err
	}
	if err := replace(c.Controllers, func(core *disruption.Queue) controller.Controller {
		return workers.Limited(timelimits.Queue(core, d.Clock, machines), 20)
	}); err != nil {
		return err
	}
	if !options.FromContext(ctx).FeatureGates.StaticCapacity {
		return nil
	}
	return replace(c.Controllers, func(core *staticprovisioning.Controller) controller.Controller {
		return staticpools.NewController(staticpools.Dependencies{
			Core: core, Servers: d.Servers, CloudProvider: c.CloudProvider,
			OnChange: d.Management.Catalog.OnChange, Recorder: d.Recorder,
			Nodes: func(nodePool string) (running, replaced int) {
				running, _, replaced = c.Cluster.NodePoolState.GetNodeCount(nodePool)
				return running, replaced
			},
			Planned: func(ctx context.Context, nodePool *karpv1.NodePool) (*karpv1.NodePool, string, error) {
				return nodeprofiles.Planned(ctx, d.Clusters, nodePool)
			},
		})
	})
}

// limitWorkers limits the workers of the other controllers to which core gives a hundred or more.
func (c *Core) limitWorkers() error {
	return errors.Join(
		// They add a label that all objects made by this version of core already have.
		limit[*nodeclaimhydration.Controller](c.Controllers, 10),
		limit[*nodehydration.Controller](c.Controllers, 10),
		// They wait only for answers of the API server.
		limit[*termination.Controller](c.Controllers, 20),
		limit[*terminator.Queue](c.Controllers, 20),
	)
}

func limit[T controller.Controller](all []controller.Controller, most int64) error {
	return replace(all, func(core T) controller.Controller { return workers.Limited(core, most) })
}

// replaceDisruption makes core also replace drifted nodes without a free server.
func (c *Core) replaceDisruption(ctx context.Context, d Dependencies, coreClient client.Client) error {
	queue, err := find[*disruption.Queue](c.Controllers)
	if err != nil {
		return err
	}
	parts := rollout.Core{Provisioner: c.Provisioner, Queue: queue}
	if !options.FromContext(ctx).IgnoreDRARequests {
		if parts.DeviceAllocation, err = find[*deviceallocation.Controller](c.Controllers); err != nil {
			return err
		}
	}
	return replace(c.Controllers, func(*disruption.Controller) controller.Controller {
		return rollout.NewController(ctx, rollout.Dependencies{
			Client: coreClient, Clusters: d.Clusters, Cluster: c.Cluster, CloudProvider: c.CloudProvider, Servers: d.Servers, Recorder: d.Recorder,
			DisruptedTogether: gangs.NewDisruptionModes(coreClient.RESTMapper(), d.Clusters.Tenant.Live, d.Clock).Together, Clock: d.Clock,
		}, parts)
	})
}

// replace puts another controller in the place of core's controller of type T.
func replace[T controller.Controller](all []controller.Controller, replacement func(core T) controller.Controller) error {
	for i := range all {
		if core, is := all[i].(T); is {
			all[i] = replacement(core)
			return nil
		}
	}
	_, err := find[T](all)
	return err
}

func find[T controller.Controller](all []controller.Controller) (T, error) {
	for _, c := range all {
		if found, is := c.(T); is {
			return found, nil
		}
	}
	var none T
	return none, fmt.Errorf("installing Karpenter's core, it has no controller of type %T: this is not the version of core that this "+
		"provider is made for", none)
}
