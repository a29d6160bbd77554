// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package holdback_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/featuregate"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/holdback"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// betweenPasses is how soon core plans again for pods that are pending.
const betweenPasses = 10 * time.Second

// tenantWorld is a tenant with core's real scheduler. Servers boot at once, and the test plays kube-scheduler.
type tenantWorld struct {
	t        *testing.T
	ctx      context.Context
	clock    *clocktesting.FakeClock
	api      client.WithWatch // of the tenant and of the management cluster
	provider client.WithWatch // the same, as the provider reaches it
	catalog  *instancetypes.Catalog
	// informers tell the provider of changes, if the test has them do so.
	informers informertest.FakeInformers
	core      *karpenter.Core
	reads     client.Client // of core
	planner   *provisioning.Provisioner
	events    []string
	launched  []*karpv1.NodeClaim
	// boot changes a node before it joins.
	boot func(*corev1.Node)
	// slow servers join when the test says so.
	slow bool
	// made is how many NodeClaims were made, and ahead how far the clock of the API server is ahead of the provider's.
	made  int
	ahead time.Duration
}

// Publish implements events.Recorder.
func (w *tenantWorld) Publish(all ...events.Event) {
	for _, event := range all {
		w.events = append(w.events, event.Reason+": "+event.Message)
	}
}

func newTenantWorld(t *testing.T, boot func(*corev1.Node), objects ...client.Object) *tenantWorld {
	t.Helper()
	settings := planning.Options(t)
	settings.IgnoreDRARequests = true
	w := &tenantWorld{t: t, ctx: settings.ToContext(log.IntoContext(t.Context(), logr.Discard())), boot: boot,
		clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second))}
	class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class", Generation: 1}}
	class.StatusConditions().SetTrue(status.ConditionReady)
	cheap, dear := planning.NodeType("cheap", 0, planning.Domain(500)), planning.NodeType("dear", 0, planning.Domain(0))
	dear.Status.Cost = 2 * cheap.Status.Cost
	objects = append(objects, class, cheap, dear, &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "tenant"}},
		planning.Pool(planning.PoolName, func(pool *karpv1.NodePool) { pool.Spec.Template.Labels = map[string]string{"team": "blue"} }))
	w.api = fake.NewClientBuilder().WithScheme(scheme.Scheme).
		// The default tracks the managers of fields, which takes most of the time.
		WithObjectTracker(clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())).
		WithObjects(objects...).
		WithStatusSubresource(&karpv1.NodeClaim{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", env.NodeOfPod).
		WithIndex(&corev1.Pod{}, holdback.NominatedField, func(object client.Object) []string {
			return []string{object.(*corev1.Pod).Status.NominatedNodeName}
		}).
		WithIndex(&karpv1.NodeClaim{}, "spec.nodeClassRef.group", func(client.Object) []string { return []string{v1alpha1.Group} }).
		WithIndex(&karpv1.NodeClaim{}, "spec.nodeClassRef.kind", func(client.Object) []string { return []string{"MetalNodeClass"} }).
		WithIndex(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.group", func(client.Object) []string { return []string{v1alpha1.Group} }).
		WithIndex(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.kind", func(client.Object) []string { return []string{"MetalNodeClass"} }).
		Build()
	w.provider = w.api
	w.catalog = instancetypes.NewCatalog(instancetypes.DefaultPods)
	w.catalog.Set(cheap)
	w.catalog.Set(dear)
	w.restart()
	return w
}

// connect makes a provider that knows nothing.
func (w *tenantWorld) connect() {
	both := tenant.Cluster{Client: w.provider, Live: w.provider}
	management := &cloudprovider.Management{Client: w.provider, Live: w.provider, Catalog: w.catalog}
	servers := cloudprovider.New(w.provider, w.provider, management, w, w.clock,
		cloudprovider.Options{Namespace: "tenant", TenantCluster: "tenant"})
	w.informers.Scheme = scheme.Scheme
	w.must(servers.Watch(w.ctx, &w.informers, &w.informers))
	clusters := tenant.Clusters{TenantCluster: types.NamespacedName{Namespace: "tenant", Name: "tenant"}, Tenant: both,
		Management: both}
	core, reads := karpenter.Plan(karpenter.Dependencies{Clusters: clusters, Servers: servers, Clock: w.clock,
		Enabled: func(featuregate.Feature) bool { return false }})
	w.core, w.reads = core, reads
	coreClient := interceptor.NewClient(reads, interceptor.OnCreate(func(nodeClaim *karpv1.NodeClaim) { // as an API server
		w.made++
		nodeClaim.Name = fmt.Sprintf("n%d", w.made)
		nodeClaim.UID, nodeClaim.CreationTimestamp = types.UID(nodeClaim.Name), metav1.NewTime(w.clock.Now().Add(w.ahead))
	}))
	w.planner = provisioning.NewProvisioner(coreClient, w, servers, core.Cluster, w.clock, deviceallocation.NewController(coreClient),
		virtualpods.NewVirtualPodCache(coreClient))
}

// restart makes a provider that knows no more than what is stored.
func (w *tenantWorld) restart() {
	w.t.Helper()
	w.connect()
	nodeClaims, nodes := &karpv1.NodeClaimList{}, &corev1.NodeList{}
	w.must(w.api.List(w.ctx, nodeClaims))
	w.must(w.api.List(w.ctx, nodes))
	for i := range nodeClaims.Items {
		w.core.Cluster.UpdateNodeClaim(&nodeClaims.Items[i])
	}
	for i := range nodes.Items {
		w.must(w.core.Cluster.UpdateNode(w.ctx, &nodes.Items[i]))
	}
}

func (w *tenantWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pass lets core plan once and boots what it launches. It returns how many servers those are.
func (w *tenantWorld) pass() int {
	w.t.Helper()
	results, err := w.planner.Schedule(w.ctx)
	w.must(err)
	names, err := w.planner.CreateNodeClaims(w.ctx, results.NewNodeClaims)
	w.must(err)
	for _, name := range names {
		w.launch(name)
		if !w.slow {
			w.join(name)
		}
	}
	w.clock.Step(betweenPasses)
	return len(names)
}

func (w *tenantWorld) passes(count int) (launched int) {
	w.t.Helper()
	for range count {
		launched += w.pass()
	}
	return launched
}

// launch plays the manager.
func (w *tenantWorld) launch(name string) {
	w.t.Helper()
	nodeClaim := &karpv1.NodeClaim{}
	w.must(w.api.Get(w.ctx, client.ObjectKey{Name: name}, nodeClaim))
	nodeType := "cheap"
	for _, requirement := range nodeClaim.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable {
			nodeType = requirement.Values[0]
		}
	}
	for key, value := range map[string]string{corev1.LabelInstanceTypeStable: nodeType, v1alpha1.NodeTypeLabelKey: nodeType,
		corev1.LabelTopologyZone: "dc1", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeReserved} {
		nodeClaim.Labels[key] = value
	}
	w.must(w.api.Update(w.ctx, nodeClaim))
	nodeClaim.Status.ProviderID = v1alpha1.ProviderID("metal3", name, name)
	nodeClaim.Status.Allocatable = env.Resources("cpu", "60", "memory", "480Gi", "pods", "110")
	nodeClaim.Status.Capacity = nodeClaim.Status.Allocatable
	nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	w.must(w.api.Status().Update(w.ctx, nodeClaim))
	w.core.Cluster.UpdateNodeClaim(nodeClaim)
}

// join plays the server.
func (w *tenantWorld) join(name string) {
	w.t.Helper()
	nodeClaim := &karpv1.NodeClaim{}
	w.must(w.api.Get(w.ctx, client.ObjectKey{Name: name}, nodeClaim))
	nodeClaim.Status.NodeName = name
	for _, condition := range []string{karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		nodeClaim.StatusConditions().SetTrue(condition)
	}
	w.must(w.api.Status().Update(w.ctx, nodeClaim))
	w.core.Cluster.UpdateNodeClaim(nodeClaim)
	node := w.nodeOf(nodeClaim)
	w.must(w.api.Create(w.ctx, node))
	w.must(w.core.Cluster.UpdateNode(w.ctx, node))
	w.launched = append(w.launched, nodeClaim)
}

// nodeOf is the node of a server that has booted.
func (w *tenantWorld) nodeOf(nodeClaim *karpv1.NodeClaim) *corev1.Node {
	name := nodeClaim.Name
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
		karpv1.NodeInitializedLabelKey: "true", karpv1.NodeRegisteredLabelKey: "true", corev1.LabelHostname: name}}}
	for key, value := range nodeClaim.Labels {
		node.Labels[key] = value
	}
	node.Spec.ProviderID = nodeClaim.Status.ProviderID
	node.Status.Allocatable = env.Resources("cpu", "60", "memory", "480Gi", "pods", "110")
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if w.boot != nil && node.Labels[v1alpha1.NodeTypeLabelKey] == "cheap" {
		w.boot(node)
	}
	node.Status.Capacity = node.Status.Allocatable
	return node
}

// giveBack removes the nodes that have no pods, as consolidation does.
func (w *tenantWorld) giveBack() {
	w.t.Helper()
	for _, nodeClaim := range w.launched {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeClaim.Name}}
		w.must(client.IgnoreNotFound(w.api.Delete(w.ctx, node)))
		w.must(client.IgnoreNotFound(w.api.Delete(w.ctx, nodeClaim)))
		w.core.Cluster.DeleteNode(nodeClaim.Name)
		w.core.Cluster.DeleteNodeClaim(nodeClaim.Name)
	}
}

func (w *tenantWorld) pend(pods ...*corev1.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		pod.CreationTimestamp = metav1.NewTime(w.clock.Now().Add(w.ahead - time.Second))
		w.must(w.api.Create(w.ctx, pod))
	}
}

// bind plays kube-scheduler.
func (w *tenantWorld) bind(pod *corev1.Pod, node string) {
	w.t.Helper()
	pod.Spec.NodeName, pod.Status = node, corev1.PodStatus{Phase: corev1.PodRunning}
	w.must(w.api.Update(w.ctx, pod))
	w.must(w.core.Cluster.UpdatePod(w.ctx, pod))
}

func (w *tenantWorld) told(text string) bool {
	for _, event := range w.events {
		if strings.Contains(event, text) {
			return true
		}
	}
	return false
}

func whole(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	return planning.Pod(name, []string{"cpu", "40", "memory", "400Gi"}, change...)
}

func lessMemory(node *corev1.Node) {
	node.Status.Allocatable = env.Resources("cpu", "60", "memory", "360Gi", "pods", "110")
}

// TestNodeThatTakesNoPods: whatever it is that keeps the pods of a node off it, core launches no more than one server for them, and one
// more each time that it is tried again. Without the holdback it launches one in each pass, for ever.
func TestNodeThatTakesNoPods(t *testing.T) {
	for name, boot := range map[string]func(*corev1.Node){
		"LessMemory": lessMemory,
		"Taint":      tainted,
		"NoLabel":    func(node *corev1.Node) { delete(node.Labels, "team") },
		"FewerPods":  func(node *corev1.Node) { node.Status.Allocatable["pods"] = env.Resources("pods", "0")["pods"] },
	} {
		for kind, pod := range map[string]*corev1.Pod{
			"":             whole("p", planning.Selecting("team", "blue")),
			"WithAffinity": whole("p", planning.Selecting("team", "blue"), planning.Together("g", corev1.LabelHostname)),
		} {
			if kind != "" && name != "Taint" {
				continue
			}
			t.Run(name+kind, func(t *testing.T) {
				w := newTenantWorld(t, boot)
				w.pend(pod.DeepCopy())
				if got := w.passes(20); got != 1 {
					t.Errorf("%d servers for one pod while the first is there, want 1", got)
				}
				if !w.told("PodNotPlaced: no NodeClaim of NodeType cheap is made") || !w.told("default/p, which asks for cpu 40, memory 400Gi") {
					t.Errorf("nobody is told: %q", w.events)
				}
				for range 24 * 4 {
					w.giveBack()
					w.passes(4)
					w.clock.Step(15 * time.Minute)
				}
				// Tried again after 0.5, 1, 2, 4, 8 and 8 hours.
				if got := len(w.launched); got < 5 || got > 7 {
					t.Errorf("%d servers in a day, want the first and one for each trial", got)
				}
			})
		}
	}
}

func tainted(node *corev1.Node) {
	node.Spec.Taints = []corev1.Taint{{Key: "example.com/of-the-image", Effect: corev1.TaintEffectNoSchedule}}
}

// TestOthersGetTheirServers: what looks similar, and is no sign that the next server would do no better.
func TestOthersGetTheirServers(t *testing.T) {
	notReady := func(node *corev1.Node) {
		node.Status.Conditions[0].Status = corev1.ConditionFalse
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
	}
	cordoned := func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
	}
	next := func(w *tenantWorld) { w.pend(whole("next")) }
	for name, tc := range map[string]struct {
		reason string
		boot   func(*corev1.Node)
		// then is what happens once the pod's node is there and core has planned once more.
		then func(w *tenantWorld, pod *corev1.Pod)
		// want is how many servers are launched afterwards.
		want int
	}{
		"Placed": {"the pod is on its node, the next one needs its own", nil, func(w *tenantWorld, pod *corev1.Pod) {
			w.bind(pod, w.launched[0].Name)
			next(w)
		}, 1},
		"Deleted": {"nobody waits for the node, so it is no evidence", lessMemory, func(w *tenantWorld, pod *corev1.Pod) {
			w.must(w.api.Delete(w.ctx, pod))
			w.core.Cluster.DeletePod(client.ObjectKeyFromObject(pod))
			next(w)
		}, 1},
		"Taken": {"another pod was faster", nil, func(w *tenantWorld, _ *corev1.Pod) {
			other := whole("other")
			w.pend(other)
			w.bind(other, w.launched[0].Name)
		}, 1},
		"PlacedElsewhere": {"it found room on another node", lessMemory, func(w *tenantWorld, pod *corev1.Pod) {
			another := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}}
			w.must(w.api.Create(w.ctx, another))
			w.must(w.core.Cluster.UpdateNode(w.ctx, another))
			w.bind(pod, another.Name)
			next(w)
		}, 1},
		"Waiting": {"kube-scheduler is not there: core plans the pod for its node, and launches nothing", nil,
			func(*tenantWorld, *corev1.Pod) {}, 0},
		"NotReady": {"the server has failed", notReady, func(*tenantWorld, *corev1.Pod) {}, 1},
		"Cordoned": {"a person has taken it", cordoned, func(*tenantWorld, *corev1.Pod) {}, 1},
		"Smaller": {"a smaller pod fits the node", lessMemory, func(w *tenantWorld, _ *corev1.Pod) {
			w.pend(planning.Pod("s", []string{"cpu", "1"}))
		}, 0},
		"OtherSize": {"pods of another size may fit a new node", lessMemory, func(w *tenantWorld, _ *corev1.Pod) {
			for i := range 2 {
				w.pend(planning.Pod(fmt.Sprint("s", i), []string{"cpu", "59", "memory", "1Gi"}))
			}
		}, 1},
		"OtherType": {"the other type is not held back", lessMemory, func(w *tenantWorld, _ *corev1.Pod) {
			dear := planning.NodeType("dear", 0, planning.Domain(5))
			dear.ResourceVersion = "2"
			w.catalog.Set(dear)
		}, 1},
		"Corrected": {"the class has another image now", lessMemory, func(w *tenantWorld, _ *corev1.Pod) {
			w.passes(3)
			class := &v1alpha1.MetalNodeClass{}
			w.must(w.api.Get(w.ctx, client.ObjectKey{Name: "default"}, class))
			before := class.DeepCopy()
			class.Generation++
			w.must(w.api.Update(w.ctx, class))
			informer, err := w.informers.FakeInformerFor(w.ctx, class)
			w.must(err)
			informer.Update(before, class)
			w.boot = nil
		}, 1},
		"TaintGone": {"a taint that stayed for a while is gone, and the node takes the pod", tainted, func(w *tenantWorld, pod *corev1.Pod) {
			w.taintGoes()
			w.bind(pod, w.launched[0].Name)
			next(w)
		}, 1},
		"TaintGoneAndWaits": {"core finds room for the pod again, which waits for another one to start with", tainted,
			func(w *tenantWorld, _ *corev1.Pod) {
				w.taintGoes()
				next(w)
			}, 1},
		"TaintGoneAndTaken": {"the node takes another pod of that size", tainted, func(w *tenantWorld, _ *corev1.Pod) {
			w.taintGoes()
			other := whole("other")
			w.pend(other)
			w.bind(other, w.launched[0].Name)
		}, 1},
		"Restarted": {"what is stored tells that the node takes no such pods", lessMemory, func(w *tenantWorld, _ *corev1.Pod) {
			w.restart()
		}, 0},
		"RestartedAndHeld": {"as above, once they are held back", lessMemory, func(w *tenantWorld, _ *corev1.Pod) {
			w.passes(3)
			w.restart()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenantWorld(t, tc.boot)
			pod := whole("p")
			w.pend(pod)
			if got := w.pass(); got != 1 {
				t.Fatalf("%d servers for one pod", got)
			}
			tc.then(w, pod)
			w.boot = nil
			if got := w.passes(5); got != tc.want {
				t.Errorf("%s: %d servers are launched, want %d: %q", tc.reason, got, tc.want, w.events)
			}
		})
	}
}

// taintGoes has the taint of the first node go once pods are held back for it.
func (w *tenantWorld) taintGoes() {
	w.t.Helper()
	w.passes(5)
	if !w.told("PodNotPlaced") {
		w.t.Error("nothing is held back")
	}
	node := w.node(w.launched[0].Name)
	node.Spec.Taints = nil
	w.must(w.api.Update(w.ctx, node))
	w.must(w.core.Cluster.UpdateNode(w.ctx, node))
}

// TestSpreadByDefaultIsNoFault: a pod that is pending beside an empty node because it would be the second of its kind in that zone says
// nothing of the node.
func TestSpreadByDefaultIsNoFault(t *testing.T) {
	labels := map[string]string{"app": "web"}
	full := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	}
	running := planning.Pod("running", nil, func(pod *corev1.Pod) {
		pod.Labels, pod.Spec.NodeName, pod.Status = labels, "here", corev1.PodStatus{Phase: corev1.PodRunning}
	})
	w := newTenantWorld(t, nil, full("here", "dc1"), full("elsewhere", "dc2"), running,
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{Selector: labels}})
	w.must(w.core.Cluster.UpdatePod(w.ctx, running))
	options.FromContext(w.ctx).SchedulerConfig = &options.SchedulerConfiguration{PodTopologySpread: &options.PodTopologySpreadConfig{
		DefaultConstraints: []corev1.TopologySpreadConstraint{{
			TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule}},
	}}
	other := whole("other")
	w.pend(whole("second", func(pod *corev1.Pod) { pod.Labels = labels }), other)
	if got := w.pass(); got != 1 {
		t.Fatalf("%d servers are launched, want the one for the other pod: %q", got, w.events)
	}
	w.must(w.api.Delete(w.ctx, other))
	w.core.Cluster.DeletePod(client.ObjectKeyFromObject(other))
	if got := w.passes(5); got != 0 || w.told("PodNotPlaced") {
		t.Errorf("%d servers are launched, want none; nobody is to be told that the node takes no pods: %q", got, w.events)
	}
}

// TestPodsThatWaitTogether: kube-scheduler binds none of the pods of a job before the last of their nodes is there, and servers boot at
// different speeds. Core plans the pods for another of the nodes in each pass. Nothing is wrong with any node, and the next job gets
// servers.
func TestPodsThatWaitTogether(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			w := newTenantWorld(t, nil)
			w.slow = true
			pods := []*corev1.Pod{whole("a0"), whole("a1"), whole("a2")}
			w.pend(pods...)
			if got := w.pass(); got != 3 {
				t.Fatalf("%d servers for three pods", got)
			}
			nodeClaims := &karpv1.NodeClaimList{}
			w.must(w.api.List(w.ctx, nodeClaims))
			again := 0
			for _, i := range order {
				w.join(nodeClaims.Items[i].Name)
				again += w.passes(6)
			}
			for i, pod := range pods {
				w.bind(pod, nodeClaims.Items[i].Name)
			}
			w.pend(whole("b0"), whole("b1"), whole("b2"))
			if next := w.passes(60); again != 0 || next != 3 || w.told("PodNotPlaced") {
				t.Errorf("%d more servers while the job waited, want 0; %d for the next job in ten minutes, want 3: %q",
					again, next, w.events)
			}
		})
	}
}

// TestServerOfPodsThatWaitFails: the others are ready and empty, and wait for one more server.
func TestServerOfPodsThatWaitFails(t *testing.T) {
	w := newTenantWorld(t, nil)
	w.pend(whole("a0"), whole("a1"), whole("a2"))
	w.passes(6)
	failed := w.launched[0]
	w.must(w.api.Delete(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: failed.Name}}))
	w.must(w.api.Delete(w.ctx, failed))
	w.core.Cluster.DeleteNode(failed.Name)
	w.core.Cluster.DeleteNodeClaim(failed.Name)
	if got := w.passes(60); got != 1 || w.told("PodNotPlaced") {
		t.Errorf("%d servers in ten minutes in the place of the one that failed, want 1: %q", got, w.events)
	}
}
