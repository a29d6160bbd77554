// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package planning_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpenter "sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/machine"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodeprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/nodetype"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
)

func TestMain(m *testing.M) {
	if err := instancetypes.Register(topology.Defaults()); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const (
	metal3, tenantNamespace = "metal3", "tenant-a"
	// roleLabel is what the types select their hosts by.
	roleLabel = "role"
)

// TestEditsDriftNothing edits at random what says where servers are, how they are grouped and what they cost, and restarts the
// programs. Nothing of that is installed on a server, so to Karpenter's own drift controller no node has drifted, and each node
// has a price.
func TestEditsDriftNothing(t *testing.T) {
	const histories, edits = 10, 25
	for seed := range uint64(histories) {
		s := newSite(t, rand.New(rand.NewPCG(seed, 13)), seed%4 == 3)
		var done []string
		for range edits {
			edit := s.edits()[s.random.IntN(len(s.edits()))]
			done = append(done, edit.name+" "+edit.make())
			s.settle()
			if problem := s.drifted(); problem != "" {
				t.Errorf("seed %d: %s, after these edits:\n  %s", seed, problem, strings.Join(done, "\n  "))
				break
			}
		}
	}
}

// fleet is what the site wants of one NodeProvider.
type fleet struct {
	exists  bool
	types   []v1alpha1.NodeTypeTemplate
	removed map[string]bool
}

// site is a management cluster with its manager, and a tenant with its provider and a node of each type.
type site struct {
	t          *testing.T
	random     *rand.Rand
	onDemand   bool          // that is what the NodePools require
	api        client.Client // of the management cluster
	tenant     client.Client
	fleets     map[string]*fleet
	seenTypes  map[string]bool
	topology   topology.Mapping
	inventory  *inventory.Inventory
	providers  *nodeprovider.Controller
	nodeTypes  *nodetype.Controller
	machines   *machine.Reconciler
	catalog    *instancetypes.Catalog
	cloud      *cloudprovider.CloudProvider
	nodeClaims []string
}

func newSite(t *testing.T, random *rand.Rand, onDemand bool) *site {
	t.Helper()
	s := &site{t: t, random: random, onDemand: onDemand, api: env.Fake(t, measured).Client, seenTypes: map[string]bool{},
		topology: topology.Default(),
		fleets: map[string]*fleet{
			"hall": {exists: true, types: []v1alpha1.NodeTypeTemplate{typeTemplate("a100"), typeTemplate("cpu")}, removed: map[string]bool{}},
			"edge": {exists: true, types: []v1alpha1.NodeTypeTemplate{typeTemplate("small")}, removed: map[string]bool{}},
		},
	}
	pools := []client.Object{}
	for name, provider := range map[string]string{"any": "", "hall-only": "hall"} {
		class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if provider != "" {
			class.Spec.ProviderRef = &v1alpha1.NameReference{Name: provider}
		}
		pools = append(pools, class, planning.Pool(name, func(pool *karpv1.NodePool) {
			pool.UID = types.UID(name)
			pool.Spec.Template.Spec.NodeClassRef.Name = name
			if onDemand {
				pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: karpv1.CapacityTypeLabelKey,
					Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeOnDemand}}}
			}
		}))
	}
	s.tenant = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(pools...).WithStatusSubresource(&karpv1.NodeClaim{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", env.NodeOfPod).Build()
	s.createTenant()
	for _, role := range []string{"a100", "cpu", "small"} {
		for n := range 2 {
			s.addHost(fmt.Sprintf("%s-%d", role, n), map[string]string{roleLabel: role, v1alpha1.DatacenterLabelKey: "dc1"})
		}
	}
	if random.IntN(2) == 0 {
		s.labelHosts(v1alpha1.DatacenterLabelKey, "") // no host says where it is
	}
	s.startManager()
	s.startProvider()
	s.settle()
	for i, node := range []struct{ nodeType, pool string }{{"a100", "any"}, {"cpu", "any"}, {"small", "any"}, {"cpu", "hall-only"}} {
		s.run(fmt.Sprintf("node-%d", i), node.nodeType, node.pool)
	}
	if problem := s.drifted(); problem != "" {
		t.Fatalf("before any edit: %s", problem)
	}
	return s
}

// createTenant creates the tenant, and what its servers are installed with.
func (s *site) createTenant() {
	s.t.Helper()
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metal3}})
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantNamespace}})
	s.create(&v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: "tenant"},
		Spec:       v1alpha1.TenantClusterSpec{APIServerEndpoint: "tenant.example.com:6443"},
	})
	s.create(&v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: "os"}, Spec: v1alpha1.OSImageSpec{Properties: map[string]string{
		v1alpha1.PropertyImageURL:      "http://images.example.com/os.qcow2",
		v1alpha1.PropertyImageChecksum: strings.Repeat("0", 64),
	}}})
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: "user-data"},
		Data:       map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config")},
	})
}

func typeTemplate(name string) v1alpha1.NodeTypeTemplate {
	return v1alpha1.NodeTypeTemplate{Name: name, HardwareProfile: v1alpha1.HardwareProfile{
		Resources:      env.Resources("cpu", "64", "memory", "512Gi"),
		Properties:     map[string]string{v1alpha1.PropertyOSImage: "os"},
		BareMetalHosts: env.HostsWith(map[string]string{roleLabel: name}),
	}}
}

// edit is one that no server is installed again for. It returns what it has chosen.
type edit struct {
	name string
	make func() string
}

func (s *site) edits() []edit {
	pick := func(values ...string) string { return values[s.random.IntN(len(values))] }
	template := func() *v1alpha1.NodeTypeTemplate {
		fleet := s.fleets[pick(slices.Sorted(maps.Keys(s.fleets))...)]
		return &fleet.types[s.random.IntN(len(fleet.types))]
	}
	hostLabel := func(key string, values ...string) func() string {
		return func() string {
			hosts, value := s.hosts(), pick(values...)
			if s.random.IntN(3) == 0 {
				s.labelHosts(key, value)
				return "of all hosts to " + value
			}
			host := hosts[s.random.IntN(len(hosts))]
			s.labelHost(host, key, value)
			return "of host " + host.Name + " to " + value
		}
	}
	return []edit{
		{"datacenter", hostLabel(v1alpha1.DatacenterLabelKey, "", "dc1", "dc2", "fra1")},
		{"rack", hostLabel(v1alpha1.RackLabelKey, "", "r1", "r2")},
		{"role", hostLabel(roleLabel, "", "a100", "cpu", "small")},
		{"host", func() string {
			name := fmt.Sprintf("spare-%d", len(s.hosts()))
			s.addHost(name, map[string]string{roleLabel: pick("a100", "cpu"), v1alpha1.DatacenterLabelKey: pick("dc1", "dc3")})
			return name
		}},
		{"zone", func() string {
			drawn := template()
			drawn.Zone = pick("", "dc1", "north")
			return "of type " + drawn.Name + " to " + drawn.Zone
		}},
		{"selector", func() string {
			drawn, value := template(), pick("a100", "cpu", "small", "nothing")
			drawn.BareMetalHosts = env.HostsWith(map[string]string{roleLabel: value})
			return "of type " + drawn.Name + " to " + value
		}},
		{"wrong selector", func() string {
			drawn := template()
			drawn.BareMetalHosts = env.HostsWith(map[string]string{roleLabel: "a wrong value"})
			return "of type " + drawn.Name
		}},
		{"cost", func() string {
			drawn := template()
			drawn.Cost = ptr.To(int64(s.random.IntN(1000)))
			return "of type " + drawn.Name
		}},
		{"maxCapacity", func() string {
			drawn := template()
			drawn.MaxCapacity = ptr.To(int32(s.random.IntN(3)))
			return "of type " + drawn.Name
		}},
		{"custom property", func() string {
			drawn := template()
			drawn.Properties["example.com/fabric"] = pick("ib", "ethernet")
			return "of type " + drawn.Name
		}},
		{"removed type", func() string {
			fleet := s.fleets["hall"]
			name := fleet.types[s.random.IntN(len(fleet.types))].Name
			fleet.removed[name] = !fleet.removed[name]
			return fmt.Sprintf("%s: %v", name, fleet.removed[name])
		}},
		{"provider", func() string {
			name := pick("hall", "edge")
			s.fleets[name].exists = !s.fleets[name].exists
			return fmt.Sprintf("%s: %v", name, s.fleets[name].exists)
		}},
		{"region", func() string {
			drawn := template()
			drawn.Properties[corev1.LabelTopologyRegion] = pick("eu", "us")
			return "of type " + drawn.Name
		}},
		{"cpus", func() string {
			drawn := template()
			drawn.Resources[corev1.ResourceCPU] = resource.MustParse(pick("32", "64", "96"))
			return "of type " + drawn.Name
		}},
		{"--topology-labels", func() string {
			mappings := [][]string{topology.Defaults(), {"rack=network.topology.nvidia.com/leaf"}, {"rack=" + corev1.LabelTopologyZone},
				{"rack", "rack=fabric.topograph.run/tier-0", "datacenter=" + corev1.LabelTopologyRegion}}
			labels := mappings[s.random.IntN(len(mappings))]
			mapping, err := topology.Parse(labels)
			s.must(err)
			s.must(instancetypes.Register(mapping.Keys()))
			s.topology = mapping
			s.startManager()
			s.startProvider()
			return strings.Join(labels, ",")
		}},
		{"labels of servers that an earlier version launched", func() string {
			name := pick(s.nodeClaims...)
			s.removeInstanceLabels(name)
			return "of " + name
		}},
		{"restart of the manager", func() string { s.startManager(); return "" }},
		{"restart of the provider", func() string { s.startProvider(); return "" }},
	}
}

// measured is the index of the controller of NodeTypes.
var measured = env.Index{Object: &v1alpha1.Machine{}, Field: nodetype.JoinedField, Values: nodetype.JoinedAs}

func (s *site) startManager() {
	recorder := &events.FakeRecorder{}
	s.inventory = inventory.NewInventory(inventory.Options{Topology: &s.topology})
	s.providers = nodeprovider.NewController(s.api, s.api, s.inventory, recorder, clock.RealClock{})
	s.nodeTypes = nodetype.NewController(s.api, s.inventory, recorder, clock.RealClock{}, resource.MustParse("20Gi"))
	s.machines = machine.New(machine.Dependencies{
		Client: s.api, Live: s.api,
		Inventory: s.inventory, Recorder: recorder, Clock: clock.RealClock{},
	})
}

func (s *site) startProvider() {
	s.catalog = instancetypes.NewCatalog(instancetypes.DefaultPods)
	s.cloud = cloudprovider.New(s.tenant, s.tenant, &cloudprovider.Management{Client: s.api, Live: s.api, Catalog: s.catalog},
		karpenterevents.NewRecorder(&record.FakeRecorder{}), clock.RealClock{},
		cloudprovider.Options{Namespace: tenantNamespace, TenantCluster: "tenant"})
}

// settle lets the controllers do what the watches would have them do, until nothing is left to do.
func (s *site) settle() {
	s.t.Helper()
	s.writeProviders()
	for range 4 {
		for _, provider := range s.list(&v1alpha1.NodeProviderList{}).(*v1alpha1.NodeProviderList).Items {
			_, err := s.providers.Reconcile(s.t.Context(), &provider)
			s.must(err)
		}
		nodeTypes := s.list(&v1alpha1.NodeTypeList{}).(*v1alpha1.NodeTypeList).Items
		for i := range nodeTypes {
			s.seenTypes[nodeTypes[i].Name] = true
		}
		for _, host := range s.hosts() {
			s.inventory.SetHost(&host)
		}
		for name := range s.seenTypes {
			_, err := s.nodeTypes.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
			s.must(err)
		}
		s.inventory.MarkHostsSynced()
		s.inventory.MarkTypesSynced()
		for _, nodeClaim := range s.nodeClaims {
			_, err := s.machines.Reconcile(s.t.Context(),
				reconcile.Request{NamespacedName: types.NamespacedName{Namespace: tenantNamespace, Name: nodeClaim}})
			s.must(err)
		}
		s.install()
		for name := range s.seenTypes {
			s.catalog.Delete(name)
		}
		nodeTypes = s.list(&v1alpha1.NodeTypeList{}).(*v1alpha1.NodeTypeList).Items
		for i := range nodeTypes {
			s.catalog.Set(&nodeTypes[i])
		}
	}
}

// writeProviders writes the NodeProviders as they are wanted, and plays the garbage collection of their NodeTypes.
func (s *site) writeProviders() {
	s.t.Helper()
	for name, wanted := range s.fleets {
		provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err := s.api.Get(s.t.Context(), client.ObjectKeyFromObject(provider), provider)
		s.must(client.IgnoreNotFound(err))
		found := err == nil
		provider.Spec.Metal3.ClusterRef.Namespace = metal3
		provider.Spec.Metal3.NodeTypes = nil
		for i := range wanted.types {
			if !wanted.removed[wanted.types[i].Name] {
				provider.Spec.Metal3.NodeTypes = append(provider.Spec.Metal3.NodeTypes, *wanted.types[i].DeepCopy())
			}
		}
		switch {
		case found && wanted.exists:
			s.must(s.api.Update(s.t.Context(), provider))
		case wanted.exists:
			s.create(provider)
		case found:
			s.must(s.api.Delete(s.t.Context(), provider))
			nodeTypes := s.list(&v1alpha1.NodeTypeList{}).(*v1alpha1.NodeTypeList).Items
			for i := range nodeTypes {
				if metav1.IsControlledBy(&nodeTypes[i], provider) {
					s.must(s.api.Delete(s.t.Context(), &nodeTypes[i]))
				}
			}
		}
	}
}

// install plays Metal3.
func (s *site) install() {
	s.t.Helper()
	for _, host := range s.hosts() {
		if host.Spec.Image == nil || host.Status.Provisioning.State == bmov1alpha1.StateProvisioned {
			continue
		}
		host.Status.Provisioning.State, host.Status.Provisioning.Image = bmov1alpha1.StateProvisioned, *host.Spec.Image
		host.Status.PoweredOn = true
		s.must(s.api.Status().Update(s.t.Context(), &host))
	}
}

// run has a node join, with a server of the type.
func (s *site) run(name, nodeType, pool string) {
	s.t.Helper()
	nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	nodeClaim.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: pool}
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenantNamespace, Name: name,
		Labels: map[string]string{v1alpha1.NodeClaimLabelKey: name, karpv1.NodePoolLabelKey: pool},
		Annotations: map[string]string{
			v1alpha1.NodeClaimUIDAnnotationKey: string(nodeClaim.UID),
		},
	}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: nodeType}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "tenant"}
	machine.Spec.Bootstrap.DataSecretName, machine.Spec.Node = "user-data", &v1alpha1.MachineNode{Name: name}
	s.create(machine)
	s.nodeClaims = append(s.nodeClaims, name)
	s.settle()
	s.must(s.api.Get(s.t.Context(), client.ObjectKeyFromObject(machine), machine))
	if machine.Status.Phase != v1alpha1.MachineJoined {
		s.t.Fatalf("Machine %s is %s, want Joined: %+v", name, machine.Status.Phase, machine.Status.Conditions)
	}
	launched, err := s.cloud.Get(s.t.Context(), machine.Status.ProviderID)
	s.must(err)
	nodeClaim.Labels = launched.Labels
	if s.onDemand { // as Create says, which knows the NodeClaim
		nodeClaim.Labels[karpv1.CapacityTypeLabelKey] = karpv1.CapacityTypeOnDemand
		delete(nodeClaim.Labels, v1alpha1.ReservationIDLabelKey)
	}
	nodeClaim.Status.ProviderID = launched.Status.ProviderID
	for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered,
		karpv1.ConditionTypeInitialized} {
		nodeClaim.StatusConditions().SetTrue(condition)
	}
	status := nodeClaim.Status
	s.must(s.tenant.Create(s.t.Context(), nodeClaim))
	nodeClaim.Status = status
	s.must(s.tenant.Status().Update(s.t.Context(), nodeClaim))
}

// removeInstanceLabels makes a node one that was launched before its servers' size was on nodes.
func (s *site) removeInstanceLabels(name string) {
	s.t.Helper()
	nodeClaim, machine := &karpv1.NodeClaim{}, &v1alpha1.Machine{}
	s.must(s.tenant.Get(s.t.Context(), types.NamespacedName{Name: name}, nodeClaim))
	s.must(s.api.Get(s.t.Context(), types.NamespacedName{Namespace: tenantNamespace, Name: name}, machine))
	for _, key := range v1alpha1.InstanceLabelKeys() {
		delete(nodeClaim.Labels, key)
		delete(machine.Status.NodeLabels, key)
	}
	s.must(s.tenant.Update(s.t.Context(), nodeClaim))
	s.must(s.api.Status().Update(s.t.Context(), machine))
}

// drifted returns which node Karpenter would replace, or has no price for; it is empty if there is none.
func (s *site) drifted() string {
	s.t.Helper()
	ctx := planning.Options(s.t).ToContext(s.t.Context())
	for _, name := range s.nodeClaims {
		nodeClaim := &karpv1.NodeClaim{}
		s.must(s.tenant.Get(s.t.Context(), types.NamespacedName{Name: name}, nodeClaim))
		// It looks for the type once an hour has passed, and then every half hour.
		nodeClaim.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
		_, err := disruption.NewController(clock.RealClock{}, s.tenant, s.cloud).Reconcile(ctx, nodeClaim)
		s.must(err)
		s.must(s.tenant.Get(s.t.Context(), types.NamespacedName{Name: name}, nodeClaim))
		what := fmt.Sprintf("NodeClaim %s, of type %s in zone %s", name, nodeClaim.Labels[corev1.LabelInstanceTypeStable],
			nodeClaim.Labels[corev1.LabelTopologyZone])
		if condition := nodeClaim.StatusConditions().Get(karpv1.ConditionTypeDrifted); condition != nil && !condition.IsFalse() {
			return what + " has drifted: " + condition.Reason
		}
		pool := &karpv1.NodePool{}
		s.must(s.tenant.Get(s.t.Context(), types.NamespacedName{Name: nodeClaim.Labels[karpv1.NodePoolLabelKey]}, pool))
		all, err := s.cloud.GetInstanceTypes(ctx, pool)
		s.must(err)
		own := slices.IndexFunc(all, func(instanceType *karpenter.InstanceType) bool {
			return instanceType.Name == nodeClaim.Labels[corev1.LabelInstanceTypeStable]
		})
		// This is how consolidation looks for the price of a node.
		if len(all[own].Offerings.Compatible(scheduling.NewLabelRequirements(nodeClaim.Labels))) == 0 {
			return what + " has no price"
		}
	}
	return ""
}

func (s *site) hosts() []bmov1alpha1.BareMetalHost {
	s.t.Helper()
	return s.list(&bmov1alpha1.BareMetalHostList{}).(*bmov1alpha1.BareMetalHostList).Items
}

func (s *site) addHost(name string, labels map[string]string) {
	s.t.Helper()
	host := env.AvailableHost(metal3, name, labels)
	status := host.Status
	s.create(host)
	host.Status = status
	s.must(s.api.Status().Update(s.t.Context(), host))
}

func (s *site) labelHosts(key, value string) {
	s.t.Helper()
	for _, host := range s.hosts() {
		s.labelHost(host, key, value)
	}
}

func (s *site) labelHost(host bmov1alpha1.BareMetalHost, key, value string) {
	s.t.Helper()
	before := host.DeepCopy()
	metav1.SetMetaDataLabel(&host.ObjectMeta, key, value)
	if value == "" {
		delete(host.Labels, key)
	}
	s.must(s.api.Patch(s.t.Context(), &host, client.MergeFrom(before)))
}

func (s *site) list(list client.ObjectList) client.ObjectList {
	s.t.Helper()
	s.must(s.api.List(s.t.Context(), list))
	return list
}

func (s *site) create(object client.Object) {
	s.t.Helper()
	s.must(s.api.Create(s.t.Context(), object))
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
