// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/node/health"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// What a method does with a drifted node.
const (
	waits      = "waits"
	launches   = "launches a replacement first"
	terminates = "terminates first"
	reboots    = "reboots"
)

// world is a NodePool of servers of one type, all of which have nodes. One of them has drifted.
type world struct {
	// free is how many servers there are beside them.
	free int32
	// static has the pool have replicas, and limit has it allow no more nodes.
	static, limit bool
	// plain servers have no GPUs.
	plain    bool
	onDemand bool
	// offeredAsFull has a type without a free server be offered with no capacity left, as core wants it to terminate first.
	offeredAsFull bool
	// other has the pool require another type than its nodes have.
	other bool
	// refusal is why the management cluster gives the pool no server.
	refusal string
	// takenBack has the Machine have its wanted image again.
	takenBack bool
	// starting is a second node, which was deleted first and whose server is being installed again.
	starting bool
}

// TestDriftBesideCore has the drift methods of core, with its gate TerminateFirstDrift, and ours decide about the same worlds. It says
// for what ours are needed, and fails when core decides as they do.
func TestDriftBesideCore(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		world
		core, ours string
	}{
		"Free": {reason: "core does this well by itself", world: world{free: 1}, core: launches, ours: launches},
		"NoneFree": {reason: "no offering has the reservation of the node while its server is taken, so core sees nothing to give back",
			core: waits, ours: terminates},
		"OfferedAsFull": {reason: "core terminates first if it has, which pods pay for: TestFullReservationKeepsPodsFromOtherPools",
			world: world{offeredAsFull: true}, core: terminates, ours: terminates},
		"OnDemand": {reason: "core knows reservations alone, and takes servers that are on-demand for endless", world: world{onDemand: true},
			core: waits, ours: terminates},
		"Budget": {reason: "core forgets a node when its server is released, and takes the next while the first is being installed again",
			world: world{offeredAsFull: true, starting: true}, core: terminates, ours: waits},
		"Refused": {reason: "a quota or a policy would keep the server from the pool, and nothing would replace the node",
			world: world{offeredAsFull: true, refusal: "quota"}, core: terminates, ours: waits},
		"TakenBack": {reason: "core has it from a cache", world: world{offeredAsFull: true, takenBack: true}, core: terminates, ours: waits},

		"StaticFree": {reason: "with the gate, core finds no offering of a type with a label of ours, and takes that for full reservations",
			world: world{static: true, free: 1}, core: waits, ours: launches},
		"Static": {reason: "as above", world: world{static: true}, core: waits, ours: terminates},
		"StaticPlain": {reason: "core finds the offerings of types without GPUs, and nothing to give back",
			world: world{static: true, plain: true}, core: waits, ours: terminates},
		"StaticOnDemand": {reason: "core launches what the provider refuses, again and again",
			world: world{static: true, plain: true, onDemand: true}, core: launches, ours: terminates},
		"StaticLimit": {reason: "a static pool at its limit is what core does well",
			world: world{static: true, plain: true, limit: true, onDemand: true}, core: terminates, ours: terminates},
		"StaticLimitReserved": {reason: "but not one of reserved servers, whose reservations it takes for full",
			world: world{static: true, plain: true, limit: true}, core: waits, ours: terminates},
		"StaticLimitGPUs": {reason: "nor one of servers with GPUs", world: world{static: true, limit: true, onDemand: true}, core: waits,
			ours: terminates},
		"StaticBudget": {reason: "and it forgets a node here, too",
			world: world{static: true, plain: true, limit: true, onDemand: true, starting: true}, core: terminates, ours: waits},
		"StaticOtherType": {reason: "the pool may not have the server again, which core sees as well",
			world: world{static: true, plain: true, limit: true, onDemand: true, other: true}, core: waits, ours: waits},
		"StaticRefused": {reason: "a quota would keep the server from it",
			world: world{static: true, plain: true, limit: true, onDemand: true, refusal: "quota"}, core: terminates, ours: waits},
		"StaticTakenBack": {reason: "core has it from a cache",
			world: world{static: true, plain: true, limit: true, onDemand: true, takenBack: true}, core: terminates, ours: waits},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newDriftFixture(t, tc.world).decide(t, true); got != tc.core {
				t.Errorf("core %s, want that it %s: %s", got, tc.core, tc.reason)
			}
			if got := newDriftFixture(t, tc.world).decide(t, false); got != tc.ours {
				t.Errorf("ours %s, want that it %s: %s", got, tc.ours, tc.reason)
			}
		})
	}
}

// TestRepairOfCore has core's newer repair decide about a node that is sick, with its gate TerminateFirstRepair. It says why the
// former repair is the default of the provider: where no server is free, core reboots a broken node, and does not replace it. It fails when
// core does.
func TestRepairOfCore(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		world
		action cloudprovider.RepairAction
		want   string
	}{
		"Free":     {reason: "core does this well", world: world{free: 1}, action: cloudprovider.ReplaceNode, want: launches},
		"NoneFree": {reason: "no offering has the reservation of the node", action: cloudprovider.ReplaceNode, want: waits},
		"OnDemand": {reason: "core knows reservations alone", world: world{onDemand: true}, action: cloudprovider.ReplaceNode, want: waits},
		"StaticLimit": {reason: "a static pool at its limit of servers without GPUs that are on-demand is all that the gate is for",
			world: world{static: true, plain: true, limit: true, onDemand: true}, action: cloudprovider.ReplaceNode, want: terminates},
		"StaticLimitGPUs": {reason: "it takes the reservations of others for full",
			world: world{static: true, limit: true, onDemand: true}, action: cloudprovider.ReplaceNode, want: waits},
		"Reboot":         {reason: "a reboot needs no other server", action: cloudprovider.RebootNode, want: reboots},
		"RebootOnDemand": {reason: "of either kind", world: world{onDemand: true}, action: cloudprovider.RebootNode, want: reboots},
	} {
		t.Run(name, func(t *testing.T) {
			settings := planning.Options(t)
			settings.FeatureGates.NodeRepair, settings.FeatureGates.TerminateFirstRepair = true, true
			ctx := settings.ToContext(t.Context())
			f := newDriftFixture(t, tc.world)
			f.provider.repair = tc.action
			matcher, err := health.NewRepairPolicyMatcher(ctx, f.provider)
			if err != nil {
				t.Fatal(err)
			}
			nodeClaim, node := &karpv1.NodeClaim{}, &corev1.Node{}
			for _, object := range []client.Object{nodeClaim, node} {
				if err := f.Get(ctx, client.ObjectKey{Name: "drifted"}, object); err != nil {
					t.Fatal(err)
				}
			}
			node.Status.Conditions[0].Status = corev1.ConditionFalse
			node.Status.Conditions[0].Reason = "Sick"
			f.cluster = state.NewCluster(clock.RealClock{}, f.Client, f.provider, state.WithRepairPolicyMatcher(matcher))
			f.provisioner = provisioning.NewProvisioner(f.Client, f.recorder, f.provider, f.cluster, clock.RealClock{},
				deviceallocation.NewController(f.Client), virtualpods.NewVirtualPodCache(f.Client))
			f.queue = disruption.NewQueue(f.Client, f.recorder, f.cluster, clock.RealClock{}, f.provisioner)
			if err := f.Status().Update(ctx, node); err != nil {
				t.Fatal(err)
			}
			f.cluster.UpdateNodeClaim(nodeClaim)
			if err := f.cluster.UpdateNode(ctx, node); err != nil {
				t.Fatal(err)
			}
			repair := disruption.NewMethods(ctx, clock.RealClock{}, f.cluster, f.Client, f.provisioner, f.provider, f.recorder, f.queue)[0]
			if got := f.decision(ctx, t, repair); got != tc.want {
				t.Errorf("core %s, want that it %s: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestFullReservationKeepsPodsFromOtherPools: core waits for a type that is offered with no capacity left, instead of planning another pool
// of less weight. So our types are not offered then, and core's TerminateFirstDrift finds nothing to give back.
func TestFullReservationKeepsPodsFromOtherPools(t *testing.T) {
	for _, offeredAsFull := range []bool{false, true} {
		f := newDriftFixture(t, world{offeredAsFull: offeredAsFull})
		f.create(t, planning.Pool("spare", func(pool *karpv1.NodePool) {
			pool.Spec.Weight = ptr.To[int32](1)
			pool.Spec.Template.Spec.Requirements = requires(corev1.LabelInstanceTypeStable, "a100")
		}), planning.Pod("waiting", []string{"nvidia.com/gpu", "1"}))
		f.provider.catalog.Set(planning.NodeType("a100", 8, planning.Domain(1)))
		results, err := f.provisioner.Schedule(planning.Options(t).ToContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if planned := len(results.NewNodeClaims) == 1; planned == offeredAsFull {
			t.Errorf("offered as full: %v, a server of the other pool is planned: %v, errors: %v", offeredAsFull, planned, results.PodErrors)
		}
	}
}

// oneType is a cloud provider with instance types only.
type oneType struct {
	cloudprovider.CloudProvider
	catalog       *instancetypes.Catalog
	offeredAsFull bool
	repair        cloudprovider.RepairAction
}

func (p *oneType) RepairPolicies() []cloudprovider.RepairPolicy {
	policy := cloudprovider.RepairPolicy{ConditionType: corev1.NodeReady, ConditionStatus: corev1.ConditionFalse,
		TerminationGracePeriod: new(time.Duration), Action: cloudprovider.ReplaceNode}
	sick := policy
	sick.ReasonRegex, sick.Action = "Sick", p.repair
	return []cloudprovider.RepairPolicy{policy, sick}
}

func (p *oneType) GetInstanceTypes(_ context.Context, pool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	types := p.catalog.InstanceTypesFor(instancetypes.NewFilter(nil, nil), instancetypes.NewDemand(nil, nil))
	for i, instanceType := range types {
		if p.offeredAsFull && instanceType.Name == "h100" {
			types[i] = instancetypes.WithOfferings(instanceType, func(offering *cloudprovider.Offering) { offering.Available = true })
		}
	}
	return instancetypes.ForNodePool(pool, types), nil
}

// freeServers has so many servers for static pools.
type freeServers struct {
	noneFree
	free int32
}

func (s freeServers) FreeFor(context.Context, *karpv1.NodePool) (int64, time.Duration, error) {
	return int64(s.free), 0, nil
}

func (*oneType) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.MetalNodeClass{}}
}

// driftFixture is a world, and core in it.
type driftFixture struct {
	world
	client.Client
	pool        *karpv1.NodePool
	provider    *oneType
	cluster     *state.Cluster
	provisioner *provisioning.Provisioner
	recorder    events.Recorder
	queue       *disruption.Queue
}

func requires(key string, values ...string) []karpv1.NodeSelectorRequirementWithMinValues {
	return []karpv1.NodeSelectorRequirementWithMinValues{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}
}

func newDriftFixture(t *testing.T, w world) *driftFixture {
	t.Helper()
	byLabel := func(value string) client.IndexerFunc { return func(client.Object) []string { return []string{value} } }
	f := &driftFixture{world: w, recorder: events.NewRecorder(record.NewFakeRecorder(100)),
		provider: &oneType{catalog: instancetypes.NewCatalog(instancetypes.DefaultPods), offeredAsFull: w.offeredAsFull},
		Client: fake.NewClientBuilder().WithScheme(env.Scheme()).WithStatusSubresource(&karpv1.NodeClaim{}).
			WithIndex(&corev1.Pod{}, "spec.nodeName", env.NodeOfPod).
			WithIndex(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.group", byLabel(v1alpha1.Group)).
			WithIndex(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.kind", byLabel("MetalNodeClass")).Build(),
	}
	f.cluster = state.NewCluster(clock.RealClock{}, f.Client, f.provider)
	f.provisioner = provisioning.NewProvisioner(f.Client, f.recorder, f.provider, f.cluster, clock.RealClock{},
		deviceallocation.NewController(f.Client), virtualpods.NewVirtualPodCache(f.Client))
	f.queue = disruption.NewQueue(f.Client, f.recorder, f.cluster, clock.RealClock{}, f.provisioner)
	gpus := 8
	if w.plain {
		gpus = 0
	}
	f.provider.catalog.Set(planning.NodeType("h100", gpus, planning.Domain(w.free)))

	nodes := int64(1)
	if w.starting {
		nodes = 2
	}
	f.pool = planning.Pool(planning.PoolName, func(pool *karpv1.NodePool) {
		pool.Spec.Weight = ptr.To[int32](10)
		pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}}
		capacityType := karpv1.CapacityTypeReserved
		if w.onDemand {
			capacityType = karpv1.CapacityTypeOnDemand
		}
		wanted := "h100"
		if w.other {
			wanted = "b200"
		}
		pool.Spec.Template.Spec.Requirements = append(requires(karpv1.CapacityTypeLabelKey, capacityType),
			requires(corev1.LabelInstanceTypeStable, wanted)...)
		if w.static {
			pool.Spec.Replicas = ptr.To(nodes)
		}
		if w.limit {
			pool.Spec.Limits = karpv1.Limits(env.Resources("nodes", "1"))
			if w.starting {
				pool.Spec.Limits = karpv1.Limits(env.Resources("nodes", "2"))
			}
		}
		if w.starting {
			pool.Annotations = map[string]string{
				v1alpha1.RolloutAnnotationKey: `[{"nodeClaim": "gone", "uid": "gone", "since": "2026-01-02T03:00:00Z"}]`,
			}
		}
	})
	f.create(t, f.pool)
	f.addNode(t, "drifted", true)
	if w.starting {
		f.addNode(t, "starting", false)
	}
	return f
}

func (f *driftFixture) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := f.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// addNode adds a node that has drifted, with a pod if no static pool wants it, or a NodeClaim whose server is being installed.
func (f *driftFixture) addNode(t *testing.T, name string, initialized bool) {
	t.Helper()
	labels := map[string]string{
		karpv1.NodePoolLabelKey: f.pool.Name, corev1.LabelInstanceTypeStable: "h100", corev1.LabelTopologyZone: "dc1",
		corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeReserved, v1alpha1.ReservationIDLabelKey: "h100",
	}
	if f.onDemand {
		labels[karpv1.CapacityTypeLabelKey] = karpv1.CapacityTypeOnDemand
		delete(labels, v1alpha1.ReservationIDLabelKey)
	}
	hour := 4
	if initialized {
		hour = 2
	}
	nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels,
		CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, hour, 0, 0, 0, time.UTC))}}
	nodeClaim.Spec.NodeClassRef = f.pool.Spec.Template.Spec.NodeClassRef
	nodeClaim.Status.ProviderID = v1alpha1.ProviderID("metal3", name, name)
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: name}}
	machine.Status.ProviderID = nodeClaim.Status.ProviderID
	drifted := metav1.Condition{Type: v1alpha1.ConditionDrifted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOSImageChanged}
	if f.takenBack {
		drifted.Status = metav1.ConditionFalse
	}
	meta.SetStatusCondition(&machine.Status.Conditions, drifted)
	nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	if initialized {
		nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
		nodeClaim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDrifted, drifted.Reason, drifted.Reason)
	}
	f.create(t, nodeClaim, machine)
	f.cluster.UpdateNodeClaim(nodeClaim)
	if !initialized {
		return
	}
	labels[karpv1.NodeRegisteredLabelKey], labels[karpv1.NodeInitializedLabelKey] = "true", "true"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	node.Spec.ProviderID = machine.Status.ProviderID
	node.Status.Allocatable = env.Resources("cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "8", "pods", "110")
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	f.create(t, node, planning.Pod("on-"+name, []string{"cpu", "1"}, func(pod *corev1.Pod) {
		if !f.plain {
			pod.Spec.Containers[0].Resources.Requests = env.Resources("nvidia.com/gpu", "8")
		}
		pod.Spec.NodeName, pod.Status = name, corev1.PodStatus{Phase: corev1.PodRunning}
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "infer", UID: "infer"}}
	}))
	if err := f.cluster.UpdateNode(planning.Options(t).ToContext(t.Context()), node); err != nil {
		t.Fatal(err)
	}
}

// decide returns what core's method does with the gate TerminateFirstDrift, or ours.
func (f *driftFixture) decide(t *testing.T, core bool) string {
	t.Helper()
	settings := planning.Options(t)
	settings.FeatureGates.TerminateFirstDrift = core
	ctx := settings.ToContext(t.Context())
	method := disruption.Method(disruption.NewDrift(f.Client, f.cluster, f.provisioner, f.recorder, clock.RealClock{}))
	if f.static {
		method = disruption.NewStaticDrift(f.cluster, f.provisioner, f.provider, f.recorder)
	}
	if !core {
		clusters := tenanttest.ClustersOf(types.NamespacedName{Namespace: "acme", Name: "acme"}, f.Client, f.Client)
		d := Dependencies{Client: f.Client, Clusters: clusters, Cluster: f.cluster, CloudProvider: f.provider,
			Servers: freeServers{noneFree: noneFree{refusal: f.refusal}, free: f.free}, Recorder: f.recorder, Clock: clock.RealClock{}}
		method = replaceDrift([]disruption.Method{method}, d, Core{Provisioner: f.provisioner, Queue: f.queue})[0]
	}
	return f.decision(ctx, t, method)
}

// decision returns what a method does.
func (f *driftFixture) decision(ctx context.Context, t *testing.T, method disruption.Method) string {
	t.Helper()
	candidates, err := disruption.GetCandidates(ctx, f.cluster, f.Client, f.recorder, clock.RealClock{}, f.provider, method.ShouldDisrupt,
		method.Class(), f.queue)
	if err != nil || len(candidates) != 1 {
		t.Fatalf("%d nodes may be disrupted, want the one that has drifted (%v)", len(candidates), err)
	}
	total, disrupting := disruption.NodePoolStats(f.cluster, method.Reason())
	budgets := disruption.NodePoolBudgetMap(ctx, clock.RealClock{}, map[string]*karpv1.NodePool{f.pool.Name: f.pool}, total, disrupting,
		method.Reason())
	commands, err := method.ComputeCommands(ctx, budgets, candidates...)
	switch {
	case err != nil:
		t.Fatal(err)
	case len(commands) == 0:
		return waits
	case commands[0].Reboot:
		return reboots
	case len(commands[0].Replacements) > 0:
		return launches
	}
	return terminates
}
