// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	cliflag "k8s.io/component-base/cli/flag"
	karpenteroptions "sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/nodeclaimstatus"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/repairs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/gangs"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/operator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tracing"
)

const (
	name = "karpenter-metal3-provider"

	tenantName     = "tenant cluster"
	managementName = "management cluster"

	// The groups of controllers that --controllers accepts.
	karpenterControllers = "karpenter"
	draControllers       = "dra"

	// defaultLaunchTimeout outlasts an outage of the management cluster or of the manager. Core's default of five
	// minutes would delete the NodeClaims that are being launched.
	defaultLaunchTimeout = time.Hour
)

type options struct {
	tenant     operator.Cluster
	management operator.Cluster

	controllers    []string
	namespace      string
	tenantCluster  string
	trustedUsers   []string
	claimTimeout   time.Duration
	launchTimeout  time.Duration
	resourcesGrace time.Duration
	gangIdle       time.Duration

	faultToleration  time.Duration
	rebootConditions []string
	repairLabels     repairs.Labels

	podsPerNode    int64
	topologyLabels []string
	mapping        topology.Mapping // derived from topologyLabels

	process         operator.Options
	tracingEndpoint string

	karpenter karpenterFlags
	gates     *operator.FeatureGates
}

func defaultOptions() *options {
	gates, err := operator.NewFeatureGates(karpenter.Features())
	utilruntime.Must(err)
	// The provider does not review who reads its metrics: they are about its tenant alone. A review needs rights in
	// the management cluster (tokenreviews, subjectaccessreviews), and a stolen token with these rights could ask who
	// may do what there.
	process := operator.DefaultOptions(nil)
	process.HealthAddress = operator.Disabled
	return &options{
		process:          process,
		tenant:           operator.Cluster{Name: tenantName, Prefix: "tenant-", Foreign: true, QPS: 200, Burst: 300},
		management:       operator.Cluster{Name: managementName, Prefix: "management-", QPS: 100, Burst: 200},
		controllers:      []string{karpenterControllers, draControllers},
		claimTimeout:     cloudprovider.DefaultClaimTimeout,
		launchTimeout:    defaultLaunchTimeout,
		resourcesGrace:   nodeclaimstatus.DefaultResourcesGrace,
		gangIdle:         gangs.DefaultIdleDuration,
		faultToleration:  cloudprovider.DefaultFaultToleration,
		rebootConditions: cloudprovider.DefaultRebootConditions(),
		repairLabels:     repairs.DefaultLabels(),
		podsPerNode:      instancetypes.DefaultPods,
		topologyLabels:   topology.Defaults(),
		karpenter:        newKarpenterFlags(),
		gates:            gates,
	}
}

func (o *options) addFlags(sections *cliflag.NamedFlagSets) {
	clusters := sections.FlagSet("clusters")
	o.tenant.AddFlags(clusters)
	o.management.AddFlags(clusters)

	tenant := sections.FlagSet("tenant")
	tenant.StringVar(&o.namespace, "namespace", o.namespace, "Namespace of the tenant in the management cluster, where its Machines are.")
	tenant.StringVar(&o.tenantCluster, "tenant-cluster", o.tenantCluster, "Name of the tenant's TenantCluster in that namespace.")

	tenant.StringSliceVar(&o.trustedUsers, "trusted-users", o.trustedUsers,
		"Users of the tenant cluster, beside the provider itself, with the right to write its objects: generated NodePools and "+
			"MetalNodeClasses, and DeviceClasses while they are in sync.")

	capacity := sections.FlagSet("capacity")
	capacity.Int64Var(&o.podsPerNode, "pods-per-node", o.podsPerNode,
		"How many pods a node takes whose NodeType has no resource pods: kubelet's maxPods.")
	capacity.StringSliceVar(&o.topologyLabels, "topology-labels", o.topologyLabels, topology.Usage)
	capacity.DurationVar(&o.claimTimeout, "claim-timeout", o.claimTimeout,
		"How long one attempt to launch a NodeClaim waits for the manager's answer.")
	capacity.DurationVar(&o.launchTimeout, "launch-timeout", o.launchTimeout,
		"How long a NodeClaim may go without an answer before it is given up.")
	capacity.DurationVar(&o.resourcesGrace, "resources-grace", o.resourcesGrace,
		"How long a node may take to advertise all resources of its NodeType after it has registered, before its NodeClaim says which are "+
			"missing.")

	capacity.DurationVar(&o.gangIdle, "gang-idle-duration", o.gangIdle,
		"How long pods with a required affinity to each other wait for more of them after the last has come, if nothing says how many they "+
			"are. 0 has them not wait. The annotation "+v1alpha1.GangIdleDurationAnnotationKey+" of the pods wins.")

	repair := sections.FlagSet("repair")
	repair.DurationVar(&o.faultToleration, "fault-toleration", o.faultToleration,
		"How long a condition of a node that reports a fault of the hardware must last, also after a reboot, before node repair acts.")
	repair.StringSliceVar(&o.rebootConditions, "reboot-conditions", o.rebootConditions,
		"Conditions of nodes for which node repair reboots the server, and replaces it if that was of no use. For the others it replaces the "+
			"server at once, as --"+legacyRepair+" does for all.")
	repair.StringVar(&o.repairLabels.Reboot, "reboot-label", o.repairLabels.Reboot,
		"Label of Nodes, as key=value, by which NVSentinel's label provider asks for a reboot (its LABEL_REBOOT_KEY). Empty: none.")
	repair.StringVar(&o.repairLabels.Terminate, "terminate-label", o.repairLabels.Terminate,
		"Label of Nodes, as key=value, by which NVSentinel's label provider asks for another server (its LABEL_TERMINATE_KEY). Empty: none.")

	o.process.AddFlags(sections)
	process := sections.FlagSet("process")
	tracing.AddFlag(process, &o.tracingEndpoint)
	process.StringSliceVar(&o.controllers, "controllers", o.controllers,
		"What runs here: karpenter, which gives pending pods servers, and dra, which keeps device classes and resource claims in sync "+
			"with the management cluster. With dra alone, the tenant needs no CustomResourceDefinitions.")

	o.karpenter.addTo(sections.FlagSet("karpenter"))
	o.gates.AddFlag(sections.FlagSet("features"))
}

// complete checks the flags and returns the options of Karpenter's core. The error names every wrong flag.
func (o *options) complete() (*karpenteroptions.Options, error) {
	errs := []error{
		o.process.Validate(), tracing.CheckFlag(o.tracingEndpoint),
		operator.CheckSet("namespace", o.namespace), operator.CheckSet("tenant-cluster", o.tenantCluster),
		operator.CheckPositive("claim-timeout", o.claimTimeout), operator.CheckPositive("launch-timeout", o.launchTimeout),
		operator.CheckPositive("resources-grace", o.resourcesGrace), operator.CheckPositive("fault-toleration", o.faultToleration),
		operator.CheckPositive("pods-per-node", o.podsPerNode), operator.CheckNotNegative("gang-idle-duration", o.gangIdle),
		cloudprovider.CheckRebootConditions(o.rebootConditions),
		repairs.Check("reboot-label", o.repairLabels.Reboot), repairs.Check("terminate-label", o.repairLabels.Terminate),
		o.readFeatureGates(),
	}
	if len(o.controllers) == 0 {
		errs = append(errs, fmt.Errorf("--controllers is empty: name %s, %s or both", karpenterControllers, draControllers))
	}
	for _, name := range o.controllers {
		if name != karpenterControllers && name != draControllers {
			errs = append(errs, fmt.Errorf("--controllers names %q: there are only %s and %s", name, karpenterControllers, draControllers))
		}
	}
	mapping, mappingErr := topology.Parse(o.topologyLabels)
	o.mapping = mapping
	karpenter, err := o.karpenter.options(o.gates)
	errs = append(errs, mappingErr, err)
	return karpenter, errors.Join(errs...)
}

// runs reports whether --controllers names this group.
func (o *options) runs(group string) bool { return slices.Contains(o.controllers, group) }

// leaseName returns the name of the lease in the tenant cluster, which has one TenantCluster. One process may run
// Karpenter and another the group dra: they must not share a lease.
func (o *options) leaseName() string {
	if o.runs(karpenterControllers) {
		return name
	}
	return name + "-" + draControllers
}

func (o *options) tenantClusterKey() types.NamespacedName {
	return types.NamespacedName{Namespace: o.namespace, Name: o.tenantCluster}
}
