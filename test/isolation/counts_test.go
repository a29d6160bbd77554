// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// burst is a fleet, and more pods than it has servers for, in batches.
type burst struct {
	*fixture
	random *rand.Rand
	// kind is what the pods ask for and what limits them.
	kind    string
	servers int
	// static is the NodePool with replicas, and how many NodeClaims it has.
	static *karpv1.NodePool
	has    int64
	// shown are the statuses of NodeTypes that were written and that the provider has not seen yet.
	shown map[string][]*v1alpha1.NodeType
	log   []string
}

var burstKinds = []string{"one type", "racks", "two types", "shared servers", "quota", "GPU quota", "limit", "maxCapacity", "static pool",
	"pods and a static pool"}

const perBurst = 3

func newBurst(t *testing.T, seed uint64) *burst {
	t.Helper()
	plain := tenancy{quota: math.MaxInt, machines: math.MaxInt}
	b := &burst{random: rand.New(rand.NewPCG(seed, 28)), kind: burstKinds[seed%uint64(len(burstKinds))],
		shown: map[string][]*v1alpha1.NodeType{}}
	b.servers = 2 + b.random.IntN(5)
	allowed := int64(1 + b.random.IntN(b.servers))
	if b.kind == "quota" {
		plain.quota = int(allowed)
	}
	b.fixture = plain.build(t)
	b.late = true
	properties := map[string]string{v1alpha1.PropertyOSImage: "image"}
	b.addType("type-0", 0, 0, properties)
	types := []string{"type-0"}
	hosts := b.servers
	switch b.kind {
	case "two types", "shared servers", "pods and a static pool":
		b.addType("type-1", 1, 0, properties)
		types = append(types, "type-1")
	}
	b.change("type-0", func(nodeType *v1alpha1.NodeType) {
		switch b.kind {
		case "GPU quota":
			nodeType.Spec.Resources["nvidia.com/gpu"] = env.Resources("gpu", "4")["gpu"]
		case "maxCapacity":
			nodeType.Spec.MaxCapacity = ptr.To(int32(allowed))
		}
	})
	if b.kind == "shared servers" || b.kind == "pods and a static pool" {
		b.change("type-1", func(nodeType *v1alpha1.NodeType) {
			nodeType.Spec.BareMetalHosts = env.HostsWith(map[string]string{"type": "type-0"})
		})
	}
	for n := range hosts {
		typeName := types[n%len(types)]
		if b.kind == "shared servers" || b.kind == "pods and a static pool" {
			typeName = "type-0"
		}
		b.environment.CreateHost(t, env.AvailableHost(b.metal3, fmt.Sprintf("host-%02d", n),
			labels.Set{"type": typeName, v1alpha1.RackLabelKey: fmt.Sprintf("r%d", n%2)}))
	}
	b.addPool("pool", types, nil)
	pool := &karpv1.NodePool{}
	b.get(client.ObjectKey{Name: "pool"}, pool)
	switch b.kind {
	case "quota", "maxCapacity":
		b.servers = int(allowed)
	case "GPU quota":
		b.servers = int(allowed)
		tenant := &v1alpha1.TenantCluster{}
		b.get(client.ObjectKey{Namespace: b.tenant, Name: tenantName}, tenant)
		tenant.Spec.Quota = &v1alpha1.Quota{GPUs: ptr.To(4*allowed + b.random.Int64N(4))}
		b.update(tenant)
	case "limit":
		b.servers = int(allowed)
		pool.Spec.Limits = karpv1.Limits{v1alpha1.ResourceNodes: env.Resources("n", fmt.Sprint(allowed))["n"]}
		b.update(pool)
	case "static pool", "pods and a static pool":
		b.addPool("static", types[len(types)-1:], nil)
		b.static = &karpv1.NodePool{}
		b.get(client.ObjectKey{Name: "static"}, b.static)
		b.static.Spec.Replicas = ptr.To(int64(2 * b.servers))
	}
	b.feedHosts()
	b.restartManager()
	b.writeAll()
	b.restartProvider()
	return b
}

func (b *burst) get(key client.ObjectKey, object client.Object) {
	b.t.Helper()
	if err := b.api.Get(b.ctx, key, object); err != nil {
		b.t.Fatal(err)
	}
}

func (b *burst) update(object client.Object) {
	b.t.Helper()
	if err := b.api.Update(b.ctx, object); err != nil {
		b.t.Fatal(err)
	}
}

func (b *burst) change(name string, change func(*v1alpha1.NodeType)) {
	b.t.Helper()
	nodeType := &v1alpha1.NodeType{}
	b.get(client.ObjectKey{Name: name}, nodeType)
	change(nodeType)
	b.update(nodeType)
}

// restartManager ends the manager with all that it has in memory.
func (b *burst) restartManager() {
	b.t.Helper()
	b.startManager()
	b.feedHosts()
	if err := b.nodeTypes.Resume(b.ctx); err != nil {
		b.t.Fatal(err)
	}
}

// restartProvider does the same with the provider: it sees the statuses that there are.
func (b *burst) restartProvider() {
	b.t.Helper()
	b.startProvider()
	left, all, nodes, pods := &karpv1.NodeClaimList{}, &v1alpha1.NodeTypeList{}, &corev1.NodeList{}, &corev1.PodList{}
	b.list(left)
	for i := range left.Items {
		b.cluster.UpdateNodeClaim(&left.Items[i])
	}
	b.list(nodes)
	for i := range nodes.Items {
		if err := b.cluster.UpdateNode(b.ctx, &nodes.Items[i]); err != nil {
			b.t.Fatal(err)
		}
	}
	b.list(pods)
	for i := range pods.Items {
		if err := b.cluster.UpdatePod(b.ctx, &pods.Items[i]); err != nil {
			b.t.Fatal(err)
		}
	}
	b.list(all)
	for i := range all.Items {
		b.informers["*v1alpha1.NodeType"].OnUpdate(nil, &all.Items[i])
	}
	clear(b.shown)
}

// write has the manager write the status of a type. The provider sees it later.
func (b *burst) write(name string) {
	b.t.Helper()
	key := client.ObjectKey{Name: name}
	if _, err := b.nodeTypes.Reconcile(b.ctx, reconcile.Request{NamespacedName: key}); err != nil {
		b.t.Fatal(err)
	}
	after := &v1alpha1.NodeType{}
	b.get(key, after)
	b.shown[name] = append(b.shown[name], after)
}

func (b *burst) typeNames() (names []string) {
	all := &v1alpha1.NodeTypeList{}
	b.list(all)
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	return names
}

func (b *burst) writeAll() {
	for _, name := range b.typeNames() {
		b.write(name)
	}
}

// show has the provider see the next status of a type that was written.
func (b *burst) show(name string) {
	if waiting := b.shown[name]; len(waiting) > 0 {
		b.informers["*v1alpha1.NodeType"].OnUpdate(nil, waiting[0])
		b.shown[name] = waiting[1:]
	}
}

// batch makes as many pods as would fill the fleet.
func (b *burst) batch(number int) {
	kind := b.random.IntN(2)
	for n := range b.servers {
		resources := []string{"cpu", "10"}
		if b.kind == "GPU quota" {
			resources = append(resources, "nvidia.com/gpu", "4")
		}
		b.create(planning.Pod(fmt.Sprintf("pod-%d-%d", number, n), resources, func(pod *corev1.Pod) {
			pod.UID = ""
			pod.Spec.NodeSelector = map[string]string{"pool": "pool"}
			switch b.kind {
			case "racks":
				pod.Spec.NodeSelector[v1alpha1.RackLabelKey] = fmt.Sprintf("r%d", (n+kind)%2)
			case "shared servers":
				pod.Spec.NodeSelector[v1alpha1.NodeTypeLabelKey] = fmt.Sprintf("type-%d", (n+kind)%2)
			}
		}))
	}
}

// replicas does what the controller of static NodePools does.
func (b *burst) replicas() {
	b.t.Helper()
	free, _, err := b.provider.FreeFor(b.ctx, b.static)
	if err != nil {
		b.t.Fatal(err)
	}
	for range min(free, *b.static.Spec.Replicas-b.has) {
		nodeClaim := b.static.Spec.Template.ToNodeClaim()
		nodeClaim.Name = fmt.Sprintf("static-%d", b.has)
		nodeClaim.Labels = map[string]string{karpv1.NodePoolLabelKey: b.static.Name}
		if err := b.client.Create(b.ctx, nodeClaim); err != nil {
			b.t.Fatal(err)
		}
		b.cluster.UpdateNodeClaim(nodeClaim)
		b.has++
	}
}

// step lets one thing happen.
func (b *burst) step(batches *int) {
	b.t.Helper()
	names := b.typeNames()
	name := names[b.random.IntN(len(names))]
	what := ""
	switch draw := b.random.IntN(20); {
	case draw < 4 && *batches < perBurst:
		what = "batch"
		if b.kind != "static pool" {
			b.batch(*batches)
		}
		*batches++
	case draw < 8:
		what = "pass"
		b.pass()
	case draw < 11 && b.static != nil:
		what = "replicas"
		b.replicas()
	case draw < 14:
		what = "write " + name
		b.write(name)
	case draw < 17:
		what = "show " + name
		b.show(name)
	case draw < 18:
		what = "hosts"
		b.feedHosts()
	case draw < 19:
		what = "restart of the manager"
		b.restartManager()
	default:
		what = "restart of the provider"
		b.restartProvider()
	}
	b.log = append(b.log, what)
}

// TestBurstMakesAsManyNodeClaimsAsServers: pods that come in batches onto a fleet that they fill make exactly as many NodeClaims as there
// are servers, or as a quota or a limit allows, however late the manager counts its claims, and the provider sees that.
func TestBurstMakesAsManyNodeClaimsAsServers(t *testing.T) { bursts(t, 0, uint64(4*len(burstKinds))) }

// TestMoreBursts does that with more fleets.
func TestMoreBursts(t *testing.T) {
	system.Only(t)
	bursts(t, uint64(4*len(burstKinds)), uint64(40*len(burstKinds)))
}

func bursts(t *testing.T, first, last uint64) {
	for seed := first; seed < last; seed++ {
		b := newBurst(t, seed)
		batches := 0
		for steps := 0; steps < 30 || batches < perBurst; steps++ {
			b.step(&batches)
		}
		for range 3 {
			b.feedHosts()
			b.writeAll()
			for _, name := range b.typeNames() {
				for range len(b.shown[name]) {
					b.show(name)
				}
			}
			if b.static != nil {
				b.replicas()
			}
			b.pass()
		}
		machines := &v1alpha1.MachineList{}
		b.list(machines, client.InNamespace(b.tenant))
		machines.Items = slices.DeleteFunc(machines.Items, func(machine v1alpha1.Machine) bool { return machine.Status.ProviderID == "" })
		if b.nodeClaims != b.servers || len(machines.Items) != b.servers || len(b.refused) > 0 {
			t.Errorf("seed %d, %s: %d NodeClaims and %d servers in use, want %d: refused %v after %s", seed, b.kind, b.nodeClaims,
				len(machines.Items), b.servers, b.refused, strings.Join(b.log, ", "))
		}
	}
}
