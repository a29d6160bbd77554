// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpentercloud "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/explain"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/quota"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// world has both clusters of a snapshot in memory, with the deciding parts of the three programs.
type world struct {
	snapshot           *view.Snapshot
	management, tenant *store
	inventory          *inventory.Inventory
	// invalid are the NodeTypes that have no servers, whatever their hosts do.
	invalid map[string]bool
	cluster types.NamespacedName // the TenantCluster
	clock   *passes
	catalog *instancetypes.Catalog
	cloud   *cloudprovider.CloudProvider
	core    *karpenter.Core
	// made are the NodeClaims that got a server, in order. plannedOn is the node that a pod was planned for: the last
	// of these NodeClaims, or else the first existing node.
	made      []*karpv1.NodeClaim
	plannedOn map[types.NamespacedName]string
}

// passes is a clock that stands still during a pass of the planner. It goes on by betweenPasses after each pass, so
// that a later pass may try again what an earlier pass refused.
type passes struct {
	clock.RealClock
	now time.Time
}

const betweenPasses = 10 * time.Second

// Now implements clock.Clock.
func (p *passes) Now() time.Time { return p.now }

// Since implements clock.Clock.
func (p *passes) Since(then time.Time) time.Duration { return p.now.Sub(then) }

// silent is a recorder that drops all events.
type silent struct{}

// Publish implements events.Recorder.
func (silent) Publish(...events.Event) {}

// registered are the labels that core knows.
var registered struct {
	sync.Mutex
	labels sets.Set[string]
}

// Register makes core know the labels of a mapping. Core keeps them without a lock. Predict calls Register for each new
// mapping, so a program that looks at fleets at the same time must call Register first.
func Register(mapping topology.Mapping) error {
	registered.Lock()
	defer registered.Unlock()
	if registered.labels != nil && registered.labels.HasAll(mapping.Keys()...) {
		return nil
	}
	if err := instancetypes.Register(mapping.Keys()); err != nil {
		return err
	}
	registered.labels = registered.labels.Union(sets.New(mapping.Keys()...))
	return nil
}

// newWorld takes over the snapshot, which belongs to the world afterwards.
func newWorld(ctx context.Context, snapshot *view.Snapshot, mapping topology.Mapping) (*world, context.Context, error) {
	if err := Register(mapping); err != nil {
		return nil, nil, err
	}
	ctx, err := coreOptions(log.IntoContext(ctx, logr.Discard()))
	if err != nil {
		return nil, nil, err
	}
	w := &world{
		snapshot: snapshot, management: newStore(), tenant: newStore(), invalid: map[string]bool{}, plannedOn: map[types.NamespacedName]string{},
		inventory: inventory.NewInventory(inventory.Options{Topology: &mapping}), clock: &passes{now: snapshot.Time.Time},
		catalog: instancetypes.NewCatalog(instancetypes.DefaultPods),
	}
	m := &snapshot.Management
	add(w.management, m.NodeProviders)
	add(w.management, m.NodeProfiles)
	add(w.management, m.TenantClusters)
	add(w.management, m.NodeTypes)
	add(w.management, m.Machines)
	add(w.management, m.Hosts)
	w.management.onCreate = w.decide
	w.fillInventory()
	w.summarize()
	if snapshot.Tenant == nil {
		return w, ctx, nil
	}
	if len(snapshot.More) > 0 {
		return nil, nil, fmt.Errorf("what-if plans in one tenant cluster, and %d were read: name one of them only", len(snapshot.More)+1)
	}
	cluster := snapshot.TenantCluster()
	if cluster == nil {
		return nil, nil, errors.New("which TenantCluster this cluster is cannot be told: none has its identity in status.clusterUID: see that " +
			"the provider runs, and has the kubeconfig of this cluster")
	}
	w.cluster = client.ObjectKeyFromObject(cluster)
	for i := range m.Machines {
		if m.Machines[i].Namespace == w.cluster.Namespace {
			w.catalog.Observe(&m.Machines[i])
		}
	}
	t := snapshot.Tenant
	// Core assumes that NodePools and NodeClaims have a class, as their API requires it.
	add(w.tenant, lo.Filter(t.NodePools, func(pool karpv1.NodePool, _ int) bool { return pool.Spec.Template.Spec.NodeClassRef != nil }))
	add(w.tenant, lo.Filter(t.NodeClaims, func(claim karpv1.NodeClaim, _ int) bool { return claim.Spec.NodeClassRef != nil }))
	add(w.tenant, t.NodeClasses)
	for i := range t.Pods {
		t.Pods[i].Spec.SchedulingGroup = nil // a snapshot has no PodGroups
	}
	add(w.tenant, t.Nodes)
	add(w.tenant, t.Pods)
	add(w.tenant, t.DaemonSets)
	return w, ctx, w.install(ctx)
}

// coreOptions returns core's options for a provider without flags, except that core ignores pods with resource
// claims.
func coreOptions(ctx context.Context) (context.Context, error) {
	flags := &options.FlagSet{FlagSet: flag.NewFlagSet("karpenter", flag.ContinueOnError)}
	core := &options.Options{}
	core.AddFlags(flags)
	if err := core.Parse(flags); err != nil {
		return nil, fmt.Errorf("the settings of Karpenter, %w", err)
	}
	core.FeatureGates, core.IgnoreDRARequests = karpenter.CoreGates(enabled), true
	return core.ToContext(ctx), nil
}

func enabled(feature featuregate.Feature) bool { return karpenter.Features()[feature].Default }

func (w *world) fillInventory() {
	for i := range w.snapshot.Management.NodeTypes {
		nodeType := &w.snapshot.Management.NodeTypes[i]
		key := client.ObjectKey{Name: nodeType.Spec.ProviderRef.Name}
		provider, _ := w.management.find(&v1alpha1.NodeProvider{}, key).(*v1alpha1.NodeProvider)
		synced := meta.FindStatusCondition(nodeType.Status.Conditions, v1alpha1.ConditionSynced)
		if synced != nil && synced.Status == metav1.ConditionFalse || w.inventory.AddType(nodeType, provider, "") != nil {
			w.invalid[nodeType.Name] = true
		}
	}
	for _, host := range w.hosts() {
		w.inventory.SetHost(host)
	}
}

func (w *world) hosts() []*bmov1alpha1.BareMetalHost {
	return lo.ToSlicePtr(all[bmov1alpha1.BareMetalHost](w.management))
}

// summarize writes what the manager would write to the NodeTypes: how many servers each has, and where.
func (w *world) summarize() {
	for _, before := range all[v1alpha1.NodeType](w.management) {
		nodeType := before.DeepCopy()
		// Otherwise the catalog would take the object for the version that it already has.
		nodeType.ResourceVersion = ""
		if nodeType.Status.Cost == 0 {
			nodeType.Status.Cost = nodeType.EffectiveCost()
		}
		if summary, known := w.inventory.Summary(nodeType.Name); known && !w.invalid[nodeType.Name] {
			nodeType.Status.Capacity, nodeType.Status.Zones, nodeType.Status.Domains, nodeType.Status.Requirements =
				summary.Capacity, summary.Zones, summary.Domains, summary.Requirements
			nodeType.Status.CountedUntil = math.MaxInt64 // the hosts have all claims
		}
		w.management.set(nodeType)
		w.catalog.Set(nodeType)
	}
}

// install starts core for the tenant cluster.
func (w *world) install(ctx context.Context) error {
	management := &cloudprovider.Management{Client: w.management, Live: w.management, Catalog: w.catalog}
	w.cloud = cloudprovider.New(w.tenant, w.tenant, management, silent{}, w.clock, cloudprovider.Options{
		Namespace: w.cluster.Namespace, TenantCluster: w.cluster.Name,
	})
	w.core, _ = karpenter.Plan(karpenter.Dependencies{
		Clusters: w.clusters(), Servers: w.cloud, Recorder: silent{}, Clock: w.clock, Enabled: enabled,
	})
	for _, claim := range lo.ToSlicePtr(all[karpv1.NodeClaim](w.tenant)) {
		w.core.Cluster.UpdateNodeClaim(claim)
	}
	for _, node := range lo.ToSlicePtr(all[corev1.Node](w.tenant)) {
		if err := w.core.Cluster.UpdateNode(ctx, node); err != nil {
			return fmt.Errorf("planning with node %s, %w", node.Name, err)
		}
	}
	for _, pod := range lo.ToSlicePtr(all[corev1.Pod](w.tenant)) {
		// The error means that the pod's node does not exist.
		_ = w.core.Cluster.UpdatePod(ctx, pod)
	}
	return nil
}

func (w *world) machineKey(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.cluster.Namespace, Name: name}
}

func (w *world) clusters() tenant.Clusters {
	return tenant.Clusters{TenantCluster: w.cluster, Tenant: tenant.Cluster{Client: w.tenant, Live: w.tenant},
		Management: tenant.Cluster{Client: w.management, Live: w.management}}
}

// maxPasses is more than any plan takes.
const maxPasses = 100

// settle plans until all servers have become nodes and core plans nothing more. It returns core's last results for
// the pending pods.
func (w *world) settle(ctx context.Context) (scheduling.Results, error) {
	for range maxPasses {
		results, err := w.core.Provisioner.Schedule(ctx)
		if err != nil {
			return scheduling.Results{}, fmt.Errorf("planning with Karpenter's scheduler, %w", err)
		}
		if err := ctx.Err(); err != nil { // core returns an incomplete plan as if it were whole
			return scheduling.Results{}, fmt.Errorf("planning with Karpenter's scheduler, %w", err)
		}
		for _, node := range results.ExistingNodes {
			for _, pod := range node.Pods {
				if key := client.ObjectKeyFromObject(pod); w.plannedOn[key] == "" {
					w.plannedOn[key] = node.Name()
				}
			}
		}
		launched := false
		for _, planned := range results.NewNodeClaims {
			got, err := w.launch(ctx, planned)
			if err != nil {
				return scheduling.Results{}, err
			}
			launched = launched || got
		}
		w.summarize()
		w.clock.now = w.clock.now.Add(betweenPasses)
		joined, err := w.join(ctx, !launched)
		if err != nil {
			return scheduling.Results{}, err
		}
		if !launched && !joined {
			return results, nil
		}
	}
	return scheduling.Results{}, fmt.Errorf("planning with Karpenter's scheduler, it has not ended after %d passes", maxPasses)
}

// launch does what core does with a planned NodeClaim, and reports whether it got a server.
func (w *world) launch(ctx context.Context, planned *scheduling.NodeClaim) (bool, error) {
	pool := &karpv1.NodePool{}
	if err := w.tenant.Get(ctx, client.ObjectKey{Name: planned.NodePoolName}, pool); err != nil {
		return false, err
	}
	if pool.Spec.Limits.ExceededBy(w.core.Cluster.NodePoolResourcesFor(pool.Name)) != nil {
		return false, nil
	}
	claim := planned.ToNodeClaim()
	for number := len(w.made) + 1; claim.Name == "" || w.management.find(&v1alpha1.Machine{}, w.machineKey(claim.Name)) != nil; number++ {
		claim.Name = fmt.Sprintf("%swhat-if-%d", claim.GenerateName, number)
	}
	claim.UID, claim.CreationTimestamp = types.UID(claim.Name), metav1.NewTime(w.clock.now)
	instancetypes.RemoveReservationIDs(claim)
	created, err := w.cloud.Create(ctx, claim)
	switch {
	case karpentercloud.IsInsufficientCapacityError(err), karpentercloud.IsNodeClassNotReadyError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("creating the Machine of NodePool %s, %w", pool.Name, err)
	}
	claim = lifecycle.PopulateNodeClaimDetails(claim, created)
	claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	w.tenant.set(claim)
	w.core.Cluster.UpdateNodeClaim(claim)
	w.core.Cluster.UpdatePodToNodeClaimMapping(map[string][]*corev1.Pod{claim.Name: planned.Pods})
	w.made = append(w.made, claim)
	for _, pod := range planned.Pods {
		w.plannedOn[client.ObjectKeyFromObject(pod)] = claim.Name
	}
	return true, nil
}

// join turns servers into nodes: servers that have usually joined by now, or, with rest, all of them. It reports
// whether there were any. Core knows the racks of nodes, but not the racks of servers on their way.
func (w *world) join(ctx context.Context, rest bool) (joined bool, err error) {
	for _, claim := range lo.ToSlicePtr(all[karpv1.NodeClaim](w.tenant)) {
		typical := time.Duration(w.typical(claim.Labels[corev1.LabelInstanceTypeStable])) * time.Second
		due := typical > 0 && w.clock.Since(claim.CreationTimestamp.Time) >= typical
		if claim.Status.NodeName != "" || claim.Status.ProviderID == "" || !claim.DeletionTimestamp.IsZero() || !due && !rest {
			continue
		}
		claim = claim.DeepCopy()
		claim.Status.NodeName = claim.Name
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		claim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: lo.Assign(claim.Labels, map[string]string{
			corev1.LabelHostname: claim.Name, karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true",
		})}}
		node.Spec.ProviderID, node.Spec.Taints = claim.Status.ProviderID, claim.Spec.Taints
		node.Status.Capacity, node.Status.Allocatable = claim.Status.Capacity, claim.Status.Allocatable
		w.tenant.set(claim)
		w.tenant.set(node)
		w.core.Cluster.UpdateNodeClaim(claim)
		if err := w.core.Cluster.UpdateNode(ctx, node); err != nil {
			return false, fmt.Errorf("planning with node %s, %w", node.Name, err)
		}
		joined = true
	}
	return joined, nil
}

// decide plays the manager: it gives a new Machine a server, or says in the status why there is none.
func (w *world) decide(object client.Object) {
	machine, isMachine := object.(*v1alpha1.Machine)
	if !isMachine {
		return
	}
	machine.UID, machine.CreationTimestamp = types.UID(machine.Name), metav1.NewTime(w.clock.now)
	refuse := func(reason string, err error) {
		machine.Status.Phase = v1alpha1.MachinePending
		for _, condition := range []string{v1alpha1.ConditionClaimed, v1alpha1.ConditionReady} {
			meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason,
				Message: err.Error()})
		}
	}
	machines := all[v1alpha1.Machine](w.management)
	tenants := lo.ToSlicePtr(lo.Filter(all[v1alpha1.TenantCluster](w.management), func(tenantCluster v1alpha1.TenantCluster, _ int) bool {
		return tenantCluster.Namespace == machine.Namespace
	}))
	machines = slices.DeleteFunc(machines, func(other v1alpha1.Machine) bool { return other.Namespace != machine.Namespace })
	charged := quota.ChargedTo(machine, tenants)
	var rest quota.Rest
	if charged != nil {
		used := quota.Used(quota.Charged(charged.Name, tenants, machines), "", nil)
		rest = quota.RestOf(charged, used, w.accelerators)
	}
	choice, err := inventory.ChooseWithin(inventory.RequestOf(machine, charged), w.inventory.Choose, rest.Check)
	var none *inventory.NoHostError
	var exceeded *quota.ExceededError
	switch {
	case errors.As(err, &none):
		refuse(none.Reason, none)
		return
	case errors.As(err, &exceeded):
		refuse(v1alpha1.ReasonQuotaExceeded, exceeded)
		return
	}
	for _, opening := range w.inventory.Opens(choice) {
		if err := rest.CheckOpening(choice.NodeType, opening); err != nil {
			refuse(v1alpha1.ReasonNoCapacity, err)
			return
		}
	}
	host := w.management.find(&bmov1alpha1.BareMetalHost{}, client.ObjectKey{Namespace: choice.Host.Namespace, Name: choice.Host.Name}).
		DeepCopyObject().(*bmov1alpha1.BareMetalHost)
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: machine.Namespace,
		Name: machine.Name}
	metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.NodeTypeAnnotationKey, choice.NodeType)
	w.management.set(host)
	w.inventory.SetHost(host)
	cost := choice.Cost
	machine.Status = v1alpha1.MachineStatus{
		Phase: v1alpha1.MachineClaimed, HostRef: &choice.Host, NodeTypeRef: &v1alpha1.NameReference{Name: choice.NodeType}, Cost: &cost,
		NodeLabels: choice.Labels, ProviderID: v1alpha1.ProviderID(choice.Host.Namespace, choice.Host.Name, machine.Name),
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonClaimed, LastTransitionTime: w.snapshot.Time},
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonClaimed, LastTransitionTime: w.snapshot.Time,
				Message: fmt.Sprintf("server %s/%s would be claimed", host.Namespace, host.Name)},
		},
	}
}

func (w *world) accelerators(nodeType string) int64 {
	known, _ := w.management.find(&v1alpha1.NodeType{}, client.ObjectKey{Name: nodeType}).(*v1alpha1.NodeType)
	if known == nil {
		return 0
	}
	return known.Spec.CountAccelerators()
}

// why explains as the provider would why a pod gets no server. It is the zero Explanation if the provider would say
// nothing.
func (w *world) why(ctx context.Context, pod *corev1.Pod) (explain.Explanation, error) {
	tenantCluster, known := w.management.find(&v1alpha1.TenantCluster{}, w.cluster).(*v1alpha1.TenantCluster)
	if !known || !explain.Pending(pod) {
		return explain.Explanation{}, nil
	}
	fleet := explain.Fleet{
		Tenant: tenantCluster, NodeTypes: all[v1alpha1.NodeType](w.management), NodePools: all[karpv1.NodePool](w.tenant),
		NodeClasses: all[v1alpha1.MetalNodeClass](w.tenant), NodeClaims: all[karpv1.NodeClaim](w.tenant),
	}
	return fleet.Pod(ctx, pod, w.cloud.Checks(w.core, w.core.Cluster.GetDaemonSetPod)...)
}

func (w *world) after() *view.Snapshot {
	m := &w.snapshot.Management
	m.Hosts, m.NodeTypes, m.Machines = all[bmov1alpha1.BareMetalHost](w.management), all[v1alpha1.NodeType](w.management),
		all[v1alpha1.Machine](w.management)
	if t := w.snapshot.Tenant; t != nil {
		t.NodeClaims, t.Nodes, t.Pods = all[karpv1.NodeClaim](w.tenant), all[corev1.Node](w.tenant), all[corev1.Pod](w.tenant)
	}
	return w.snapshot
}
