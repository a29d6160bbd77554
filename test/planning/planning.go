// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package planning runs core's provisioner in memory, without an API server, so that tests see which NodeClaims core
// plans with our instance types.
package planning

import (
	"context"
	"flag"
	"slices"
	"sync"
	"testing"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	fakes "sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// PoolName is the name of the default NodePool of a Plan.
const PoolName = "servers"

// Plan is the input of core's provisioner.
type Plan struct {
	// Types by name.
	Types []*v1alpha1.NodeType
	// Class of all NodePools; nil for one that says nothing.
	Class *v1alpha1.MetalNodeClass
	// Machines of the tenant that have nodes, whose sizes are known.
	Machines []*v1alpha1.Machine
	// Quota is what the quota of the tenant leaves.
	Quota quota.Rest
	// Refused are the types that a NodePool is not offered, because the last NodeClaims of them were refused.
	Refused map[string][]string
	// Pools are the NodePools; one without requirements if there are none.
	Pools []*karpv1.NodePool
	// Spread are the constraints of pods that have none of their own, as --scheduler-config gives them to core.
	Spread []corev1.TopologySpreadConstraint
	// Decorate wraps the client of core. It may be nil.
	Decorate func(client.Client, *instancetypes.Catalog) client.Client
	// Made gets the provisioner, and its state, before it plans. It may be nil.
	Made func(*provisioning.Provisioner, *state.Cluster)
	// Objects are the pods, nodes and NodeClaims.
	Objects []client.Object
}

// Pool returns a NodePool that is ready. Change may be nil.
func Pool(name string, change func(*karpv1.NodePool)) *karpv1.NodePool {
	pool := &karpv1.NodePool{}
	pool.Name, pool.UID = name, "pool"
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default"}
	if change != nil {
		change(pool)
	}
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeValidationSucceeded)
	pool.StatusConditions().SetTrue(karpv1.ConditionTypeNodeClassReady)
	return pool
}

// Solve runs one scheduling pass of core.
func (p Plan) Solve(tb testing.TB) scheduling.Results {
	tb.Helper()
	results, err := p.Planner(tb)()
	if err != nil {
		tb.Fatal(err)
	}
	return results
}

// Options returns those that core has without any flag.
func Options(tb testing.TB) *options.Options {
	tb.Helper()
	flags := &options.FlagSet{FlagSet: flag.NewFlagSet("karpenter", flag.ContinueOnError)}
	settings := &options.Options{}
	settings.AddFlags(flags)
	if err := settings.Parse(flags); err != nil {
		tb.Fatal(err)
	}
	return settings
}

// kinds is what the API server of a plan serves.
var kinds = sync.OnceValue(func() meta.RESTMapper { return testrestmapper.TestOnlyStaticRESTMapper(scheme.Scheme) })

// Planner returns a function that runs a scheduling pass of core. It creates nothing.
func (p Plan) Planner(tb testing.TB) func() (scheduling.Results, error) {
	tb.Helper()
	settings := Options(tb)
	settings.SchedulerConfig = &options.SchedulerConfiguration{
		PodTopologySpread: &options.PodTopologySpreadConfig{DefaultConstraints: p.Spread},
	}
	settings.IgnoreDRARequests = false // as the provider has it
	ctx := settings.ToContext(context.Background())
	catalog := instancetypes.NewCatalog(instancetypes.DefaultPods)
	for _, nodeType := range p.Types {
		catalog.Set(nodeType)
	}
	for _, machine := range p.Machines {
		catalog.Observe(machine)
	}
	if len(p.Pools) == 0 {
		p.Pools = []*karpv1.NodePool{Pool(PoolName, nil)}
	}
	objects := p.Objects
	for _, pool := range p.Pools {
		objects = append(objects, pool)
	}
	kubeClient := client.Client(fake.NewClientBuilder().WithScheme(scheme.Scheme).WithRESTMapper(kinds()).WithObjects(objects...).
		WithInterceptorFuncs(fakes.Funcs{Get: getVolume}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", env.NodeOfPod).
		WithIndex(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.group",
			func(client.Object) []string { return []string{v1alpha1.Group} }).
		WithIndex(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.kind",
			func(client.Object) []string { return []string{"MetalNodeClass"} }).
		Build())
	provider := typesOnly{catalog: catalog, class: p.Class, quota: p.Quota, tenant: kubeClient, refused: p.Refused}
	if p.Decorate != nil {
		kubeClient = p.Decorate(kubeClient, catalog)
	}
	cluster := state.NewCluster(clock.RealClock{}, kubeClient, provider)
	for _, object := range p.Objects {
		if nodeClaim, ok := object.(*karpv1.NodeClaim); ok {
			cluster.UpdateNodeClaim(nodeClaim)
		}
		if node, ok := object.(*corev1.Node); ok {
			if err := cluster.UpdateNode(ctx, node); err != nil {
				tb.Fatal(err)
			}
		}
	}
	allocated := deviceallocation.NewController(kubeClient)
	allocated.Hydrate(ctx)
	provisioner := provisioning.NewProvisioner(kubeClient, events.NewRecorder(record.NewFakeRecorder(1000)), provider, cluster,
		clock.RealClock{}, allocated, virtualpods.NewVirtualPodCache(kubeClient))
	if p.Made != nil {
		p.Made(provisioner, cluster)
	}
	return func() (scheduling.Results, error) { return provisioner.Schedule(ctx) }
}

// getVolume reads PersistentVolumes by their name alone, as an API server does: core asks for one in the namespace of its pod.
func getVolume(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, volume := object.(*corev1.PersistentVolume); volume {
		key.Namespace = ""
	}
	return c.Get(ctx, key, object, options...)
}

// typesOnly is a cloud provider with instance types only.
type typesOnly struct {
	cloudprovider.CloudProvider
	catalog *instancetypes.Catalog
	class   *v1alpha1.MetalNodeClass
	quota   quota.Rest
	tenant  client.Client
	refused map[string][]string
}

func (p typesOnly) GetInstanceTypes(ctx context.Context, pool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	demand, err := instancetypes.ReadDemand(ctx, p.tenant)
	if err != nil {
		return nil, err
	}
	types := p.catalog.InstanceTypesFor(instancetypes.NewFilter(nil, p.class), demand)
	offered := slices.DeleteFunc(instancetypes.LimitTypes(p.quota, types),
		func(instanceType *cloudprovider.InstanceType) bool {
			return slices.Contains(p.refused[pool.Name], instanceType.Name)
		})
	return instancetypes.ForNodePool(pool, offered), nil
}

func (p typesOnly) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.MetalNodeClass{}}
}
