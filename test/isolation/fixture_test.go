// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpcloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/machine"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodetype"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

const (
	tenantName   = "tenant"
	providerName = "provider"
	// step is how often core looks at pods that wait, and tries NodeClaims again.
	step = 10 * time.Second
)

// fixture is one tenant on one API server in memory, with the real manager, the real CloudProvider and core's own provisioner.
// Nothing runs by itself: time passes in steps.
type fixture struct {
	t                      *testing.T
	ctx                    context.Context
	environment            *env.Environment
	api                    client.WithWatch
	metal3, tenant, others string
	clock                  *expiredClock
	// deny is what a policy engine or a ResourceQuota says of a Machine; nil admits it.
	deny func(*v1alpha1.Machine) error

	inventory   *inventory.Inventory
	manager     *machine.Reconciler
	nodeTypes   *nodetype.Controller
	provider    *cloudprovider.CloudProvider
	cluster     *state.Cluster
	provisioner *provisioning.Provisioner
	informers   map[string]toolscache.ResourceEventHandler
	// client is that of the manager, the provider and core. writes are when they have written.
	client client.WithWatch
	writes []time.Time
	// nodeClaims is how many core has created, refused are the errors of those that got no server.
	nodeClaims int
	refused    []string
	// late is true if neither the inventory nor the provider follows a claim by itself, and NodeClaims become nodes.
	late bool
}

// expiredClock is a clock of which each timer has run out. Everything answers at once here, or not at all.
type expiredClock struct {
	*clocktesting.FakeClock
	// timers since the last step. A wait that does not end would stop the test otherwise.
	timers int
}

func (c *expiredClock) NewTimer(time.Duration) clock.Timer {
	if c.timers++; c.timers > 10_000 {
		panic("a wait did not end: the reason of the Machine is not one that the provider knows")
	}
	over := make(chan time.Time, 1)
	over <- c.Now()
	return timer(over)
}

type timer chan time.Time

func (t timer) C() <-chan time.Time      { return t }
func (t timer) Stop() bool               { return false }
func (t timer) Reset(time.Duration) bool { return false }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	environment := env.Fake(t, env.Index{Object: &corev1.Pod{}, Field: "spec.nodeName", Values: env.NodeOfPod},
		env.Index{Object: &v1alpha1.Machine{}, Field: nodetype.JoinedField, Values: nodetype.JoinedAs})
	w := &fixture{t: t, environment: environment, api: environment.Client,
		metal3: environment.Namespace(t), tenant: environment.Namespace(t), others: environment.Namespace(t),
		clock: &expiredClock{FakeClock: clocktesting.NewFakeClock(time.Now())}, deny: func(*v1alpha1.Machine) error { return nil },
		informers: map[string]toolscache.ResourceEventHandler{}}
	w.ctx = planning.Options(t).ToContext(t.Context())
	w.client = interceptor.NewClient(w.api, w.counted())
	w.startManager()
	w.startProvider()
	return w
}

// counted counts the writes, and has the manager answer each one of a Machine.
func (w *fixture) counted() interceptor.Funcs {
	count := func() { w.writes = append(w.writes, w.clock.Now()) }
	return interceptor.Funcs{
		Create: func(ctx context.Context, direct client.WithWatch, object client.Object, options ...client.CreateOption) error {
			count()
			if _, is := object.(*karpv1.NodeClaim); is {
				w.nodeClaims++
			}
			created, is := object.(*v1alpha1.Machine)
			if !is {
				return direct.Create(ctx, object, options...)
			}
			if err := w.deny(created); err != nil {
				return err
			}
			if err := direct.Create(ctx, created, options...); err != nil {
				return err
			}
			w.manage(client.ObjectKeyFromObject(created))
			// The provider sees the answer at once, as if the watch were faster than the response.
			return direct.Get(ctx, client.ObjectKeyFromObject(created), created)
		},
		Update: func(ctx context.Context, direct client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			count()
			return direct.Update(ctx, object, options...)
		},
		Patch: func(ctx context.Context, direct client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			count()
			return direct.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, direct client.Client, name string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			count()
			return direct.SubResource(name).Patch(ctx, object, patch, options...)
		},
		Delete: func(ctx context.Context, direct client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			count()
			if err := direct.Delete(ctx, object, options...); err != nil {
				return err
			}
			if _, is := object.(*v1alpha1.Machine); is {
				w.manage(client.ObjectKeyFromObject(object))
			}
			return nil
		},
	}
}

func (w *fixture) startManager() {
	w.inventory = inventory.NewInventory(inventory.Options{})
	w.inventory.MarkTypesSynced()
	w.inventory.MarkHostsSynced()
	w.nodeTypes = nodetype.NewController(w.client, w.inventory, silent{}, w.clock, resource.MustParse("20Gi"))
	w.manager = machine.New(machine.Dependencies{
		Client: w.client, Live: w.api,
		Inventory: w.inventory, Recorder: silent{}, Clock: w.clock,
	})
}

// silent drops the manager's events.
type silent struct{ clientevents.EventRecorder }

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (w *fixture) startProvider() {
	catalog := instancetypes.NewCatalog(instancetypes.DefaultPods)
	management, err := cloudprovider.NewManagement(w.ctx, watches{w: w}, w.client, w.api, catalog)
	if err != nil {
		w.t.Fatal(err)
	}
	recorder := events.NewRecorder(&record.FakeRecorder{})
	w.provider = cloudprovider.New(w.api, w.api, management, recorder, w.clock, cloudprovider.Options{
		Namespace: w.tenant, TenantCluster: tenantName, ClaimTimeout: cloudprovider.DefaultClaimTimeout,
	})
	w.cluster = state.NewCluster(w.clock, w.client, w.provider)
	w.provisioner = provisioning.NewProvisioner(w.client, recorder, w.provider, w.cluster, w.clock, deviceallocation.NewController(w.client),
		virtualpods.NewVirtualPodCache(w.client))
}

// watches is a cache that keeps the handlers of its informers.
type watches struct {
	cache.Cache
	w *fixture
}

func (c watches) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return informer{w: c.w, kind: fmt.Sprintf("%T", object)}, nil
}

type informer struct {
	cache.Informer
	w    *fixture
	kind string
}

func (i informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.w.informers[i.kind] = handler
	return synced{}, nil
}

type synced struct {
	toolscache.ResourceEventHandlerRegistration
}

func (synced) HasSynced() bool { return true }

// manage has the manager reconcile a Machine until nothing changes, and the provider see what follows for the NodeTypes.
func (w *fixture) manage(key client.ObjectKey) {
	w.t.Helper()
	for range 4 {
		if !w.late {
			w.feedHosts()
		}
		if _, err := w.manager.Reconcile(w.ctx, reconcile.Request{NamespacedName: key}); err != nil {
			w.t.Logf("reconciling Machine %s: %v", key, err)
		}
	}
	if !w.late {
		w.feedHosts()
		w.feedTypes()
	}
}

func (w *fixture) feedHosts() {
	hosts := &hostList{}
	w.list(hosts, client.InNamespace(w.metal3))
	for i := range hosts.Items {
		w.inventory.SetHost(&hosts.Items[i])
	}
}

func (w *fixture) feedTypes() {
	w.t.Helper()
	types := &v1alpha1.NodeTypeList{}
	w.list(types)
	for i := range types.Items {
		key := client.ObjectKeyFromObject(&types.Items[i])
		if _, err := w.nodeTypes.Reconcile(w.ctx, reconcile.Request{NamespacedName: key}); err != nil {
			w.t.Fatal(err)
		}
		after := &v1alpha1.NodeType{}
		if err := w.api.Get(w.ctx, key, after); err != nil {
			w.t.Fatal(err)
		}
		w.informers["*v1alpha1.NodeType"].OnUpdate(nil, after)
	}
}

func (w *fixture) list(list client.ObjectList, options ...client.ListOption) {
	w.t.Helper()
	if err := w.api.List(w.ctx, list, options...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) create(object client.Object) {
	w.t.Helper()
	if err := w.api.Create(w.ctx, object); err != nil {
		w.t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
	}
}

// addType makes a NodeType with so many servers and these properties. Later ones cost more.
func (w *fixture) addType(name string, rank, servers int, properties map[string]string) {
	w.t.Helper()
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nodeType.Spec.ProviderRef.Name = providerName
	nodeType.Spec.BareMetalHosts = env.HostsWith(map[string]string{"type": name})
	nodeType.Spec.Resources = env.Resources("cpu", "16", "memory", fmt.Sprintf("%dGi", 64+64*rank))
	nodeType.Spec.Properties = maps.Clone(properties)
	provider := &v1alpha1.NodeProvider{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: providerName}, provider); err != nil {
		w.t.Fatal(err)
	}
	provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes,
		v1alpha1.NodeTypeTemplate{Name: name, HardwareProfile: *nodeType.Spec.HardwareProfile.DeepCopy()})
	if err := w.api.Update(w.ctx, provider); err != nil {
		w.t.Fatal(err)
	}
	nodeType.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(provider, v1alpha1.GroupVersion.WithKind("NodeProvider"))}
	w.create(nodeType)
	for n := range servers {
		w.environment.CreateHost(w.t, env.AvailableHost(w.metal3, fmt.Sprintf("%s-%02d", name, n), labels.Set{"type": name}))
	}
}

// addPool makes a class with these properties and a NodePool for it, whose nodes are of these types.
func (w *fixture) addPool(name string, types []string, properties map[string]string) {
	w.t.Helper()
	class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.Properties = maps.Clone(properties)
	w.create(class)
	class.StatusConditions().SetTrue(v1alpha1.ConditionValidationSucceeded)
	pool := planning.Pool(name, func(pool *karpv1.NodePool) {
		pool.UID = ""
		pool.Spec.Template.Spec.NodeClassRef.Name = name
		pool.Spec.Template.Labels = map[string]string{"pool": name}
		pool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
		pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
		pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
			{Key: v1alpha1.NodeTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: types}}
	})
	pool.Status.Nodes = ptr.To(int64(0)) // an API server would set the default
	status := pool.Status.DeepCopy()
	w.create(pool)
	pool.Status = *status
	for i := range pool.Status.Conditions {
		pool.Status.Conditions[i].ObservedGeneration = pool.Generation
	}
	for _, object := range []client.Object{class, pool} {
		if err := w.api.Status().Update(w.ctx, object); err != nil {
			w.t.Fatal(err)
		}
	}
}

// pass lets one step of time pass: core tries the NodeClaims that are left again, and then plans for the pods that wait.
func (w *fixture) pass() {
	w.t.Helper()
	left := &karpv1.NodeClaimList{}
	w.list(left)
	for i := range left.Items {
		if left.Items[i].Status.ProviderID == "" {
			w.launch(&left.Items[i])
		}
	}
	if w.cluster.Synced(w.ctx) {
		plan, err := w.provisioner.Schedule(w.ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		for pod, err := range plan.PodErrors {
			w.t.Logf("%v pod %s: %v", w.clock.Now().Format("04:05"), pod.Name, err)
		}
		for _, planned := range plan.NewNodeClaims {
			name, err := w.provisioner.Create(w.ctx, planned)
			if err != nil {
				w.t.Fatal(err)
			}
			nodeClaim := &karpv1.NodeClaim{}
			if err := w.api.Get(w.ctx, client.ObjectKey{Name: name}, nodeClaim); err != nil {
				w.t.Fatal(err)
			}
			if w.launch(nodeClaim) {
				for _, pod := range planned.Pods {
					w.bind(pod, name)
				}
			}
		}
	}
	w.clock.timers = 0
	w.clock.Step(step)
}

// launch does what core does with a NodeClaim without a provider ID, and returns whether it got a server. The rest of the life of a
// NodeClaim is not simulated: it ends here, and its Machine and its server stay, or it becomes a node at once.
func (w *fixture) launch(nodeClaim *karpv1.NodeClaim) bool {
	w.t.Helper()
	created, err := w.provider.Create(w.ctx, nodeClaim)
	w.t.Logf("%v %s: %v", w.clock.Now().Format("04:05"), nodeClaim.Name, err)
	if err != nil && !karpcloudprovider.IsInsufficientCapacityError(err) && !karpcloudprovider.IsNodeClassNotReadyError(err) {
		return false
	}
	if err == nil && w.late {
		w.join(lifecycle.PopulateNodeClaimDetails(nodeClaim, created))
		return true
	}
	if err != nil {
		w.refused = append(w.refused, fmt.Sprintf("%s: %v", nodeClaim.Name, err))
	}
	if err := w.client.Delete(w.ctx, nodeClaim); err != nil {
		w.t.Fatal(err)
	}
	w.cluster.DeleteNodeClaim(nodeClaim.Name)
	return err == nil
}

// join makes a node of a NodeClaim that has its server.
func (w *fixture) join(nodeClaim *karpv1.NodeClaim) {
	w.t.Helper()
	status := nodeClaim.Status.DeepCopy()
	status.NodeName = nodeClaim.Name
	if err := w.api.Update(w.ctx, nodeClaim); err != nil {
		w.t.Fatal(err)
	}
	nodeClaim.Status = *status
	for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		nodeClaim.StatusConditions().SetTrue(condition)
	}
	if err := w.api.Status().Update(w.ctx, nodeClaim); err != nil {
		w.t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeClaim.Name, Labels: maps.Clone(nodeClaim.Labels)}}
	node.Labels[corev1.LabelHostname] = node.Name
	node.Labels[karpv1.NodeRegisteredLabelKey], node.Labels[karpv1.NodeInitializedLabelKey] = "true", "true"
	node.Spec.ProviderID = nodeClaim.Status.ProviderID
	node.Status.Capacity, node.Status.Allocatable = nodeClaim.Status.Capacity, nodeClaim.Status.Allocatable
	w.create(node)
	w.cluster.UpdateNodeClaim(nodeClaim)
	if err := w.cluster.UpdateNode(w.ctx, node); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) bind(pod *corev1.Pod, node string) {
	w.t.Helper()
	bound := &corev1.Pod{}
	if err := w.api.Get(w.ctx, client.ObjectKeyFromObject(pod), bound); err != nil {
		w.t.Fatal(err)
	}
	bound.Spec.NodeName = node
	if err := w.api.Update(w.ctx, bound); err != nil {
		w.t.Fatal(err)
	}
	if !w.late {
		return
	}
	if err := w.cluster.UpdatePod(w.ctx, bound); err != nil {
		w.t.Fatal(err)
	}
}
