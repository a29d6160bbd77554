// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package planning_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	karpenterevents "sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/planning"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

const (
	nvlink = v1alpha1.NVLinkDomainLabelKey
	// gangSize is how many servers the gang needs. Domain n1 has one less, and n2 has so many.
	gangSize = 3
	// maxRounds is how many rounds of ten seconds a provider may need: refusals are forgotten within that time.
	maxRounds = 60
	// quietRounds show that nothing happens any more.
	quietRounds = 6
)

// impatient is a clock whose timers have fired. So nothing waits: what is not there yet is looked for in the next round.
type impatient struct{ *testclock.FakeClock }

func (impatient) NewTimer(time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(0) }

// gangSite is a site whose tenant has a gang. Nothing runs by itself: in a round each program looks at everything once.
type gangSite struct {
	*site
	tenantAPI, managementAPI client.WithWatch
	clock                    impatient
	// connection is that of the provider that is running.
	connection *faults.Connection
	core       *karpenter.Core
	lifecycle  *lifecycle.Controller
	garbage    *garbagecollection.MachineController
	// crashed is called once the provider has died, before the next one starts.
	crashed func()
	// accident is the domain in which the gang has lost a server, empty if there is none.
	accident string
}

// index is one of a cache. object says the kind.
func index[T client.Object](object T, field string, value func(T) string) env.Index {
	return env.Index{Object: object, Field: field, Values: func(object client.Object) []string {
		typed, _ := object.(T)
		return []string{value(typed)}
	}}
}

func newGangSite(t *testing.T, connection *faults.Connection) *gangSite {
	t.Helper()
	gang := func(machine *v1alpha1.Machine) string {
		return ptr.Deref(machine.Spec.Gang, v1alpha1.MachineGang{}).Name
	}
	s := &gangSite{
		managementAPI: env.Fake(t, measured, index(&v1alpha1.Machine{}, "spec.gang.name", gang)).Client,
		tenantAPI: env.Fake(t,
			index(&corev1.Pod{}, "spec.nodeName", func(pod *corev1.Pod) string { return pod.Spec.NodeName }),
			index(&storagev1.VolumeAttachment{}, "spec.nodeName", func(a *storagev1.VolumeAttachment) string { return a.Spec.NodeName }),
			index(&corev1.Node{}, "spec.providerID", func(node *corev1.Node) string { return node.Spec.ProviderID }),
			index(&karpv1.NodeClaim{}, "status.providerID", func(nodeClaim *karpv1.NodeClaim) string { return nodeClaim.Status.ProviderID }),
			index(&karpv1.NodeClaim{}, "spec.nodeClassRef.group", func(claim *karpv1.NodeClaim) string { return claim.Spec.NodeClassRef.Group }),
			index(&karpv1.NodeClaim{}, "spec.nodeClassRef.kind", func(claim *karpv1.NodeClaim) string { return claim.Spec.NodeClassRef.Kind }),
			index(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.group", func(*karpv1.NodePool) string { return v1alpha1.Group }),
			index(&karpv1.NodePool{}, "spec.template.spec.nodeClassRef.kind", func(*karpv1.NodePool) string { return "MetalNodeClass" }),
		).Client,
		clock: impatient{testclock.NewFakeClock(time.Now())}, connection: connection, crashed: func() {},
	}
	s.site = &site{t: t, api: s.managementAPI, tenant: s.tenantAPI, seenTypes: map[string]bool{}, topology: topology.Default(),
		fleets: map[string]*fleet{"hall": {exists: true, types: []v1alpha1.NodeTypeTemplate{typeTemplate("h100")}, removed: map[string]bool{}}}}
	s.createTenant()
	for domain, servers := range map[string]int{"n1": gangSize - 1, "n2": gangSize} {
		for n := range servers {
			s.addServer(fmt.Sprint(domain, "-", n), domain)
		}
	}
	s.startManager()
	lifecycle.LaunchTimeout = time.Hour // as Install sets it

	class := &v1alpha1.MetalNodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool := planning.Pool(planning.PoolName, func(pool *karpv1.NodePool) {
		pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{}
	})
	poolStatus := pool.Status
	s.must(s.tenant.Create(t.Context(), class))
	class.StatusConditions().SetTrue("Ready")
	s.must(s.tenant.Status().Update(t.Context(), class))
	s.must(s.tenant.Create(t.Context(), pool))
	pool.Status = poolStatus
	s.must(s.tenant.Status().Update(t.Context(), pool))
	for n := range gangSize {
		pod := planning.Pod(fmt.Sprint("train-", n), []string{"cpu", "60"}, planning.Together("train", nvlink), func(pod *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.GangMinCountAnnotationKey, fmt.Sprint(gangSize))
		})
		s.must(s.tenant.Create(t.Context(), pod))
	}
	s.startProvider()
	return s
}

func (s *gangSite) addServer(name, domain string) {
	s.t.Helper()
	s.addHost(name, map[string]string{roleLabel: "h100", v1alpha1.DatacenterLabelKey: "dc1", nvlink: domain})
}

// startProvider starts a provider that knows nothing but what the API servers have.
func (s *gangSite) startProvider() {
	tenantClient, managementClient := s.connection.Client(s.tenantAPI), s.connection.Client(s.managementAPI)
	s.catalog = instancetypes.NewCatalog(instancetypes.DefaultPods)
	management := &cloudprovider.Management{Client: managementClient, Live: managementClient, Catalog: s.catalog}
	recorder := karpenterevents.NewRecorder(&record.FakeRecorder{})
	s.cloud = cloudprovider.New(tenantClient, tenantClient, management, recorder, s.clock,
		cloudprovider.Options{Namespace: tenantNamespace, TenantCluster: "tenant"})
	clusters := tenanttest.ClustersOf(types.NamespacedName{Namespace: tenantNamespace, Name: "tenant"}, tenantClient, managementClient)
	core, coreClient := karpenter.Plan(karpenter.Dependencies{
		Clusters: clusters, Servers: s.cloud, Recorder: recorder, Clock: s.clock, Enabled: func(featuregate.Feature) bool { return true },
	})
	s.core, s.garbage = core, garbagecollection.NewMachineController(s.clock, clusters)
	s.lifecycle = lifecycle.NewController(s.clock, coreClient, s.cloud, recorder, core.Cluster, nodepoolhealth.NewState(), nil)
}

// round has the manager and the provider look at everything, and a provider that has died be followed by another. Errors are what a work
// queue would try again.
func (s *gangSite) round() {
	s.t.Helper()
	if s.connection.Dead() {
		s.crashed()
		s.connection = &faults.Connection{}
		s.startProvider()
	}
	for _, machine := range s.machinesLeft() {
		if !slices.Contains(s.nodeClaims, machine.Name) {
			s.nodeClaims = append(s.nodeClaims, machine.Name)
		}
	}
	s.settle()
	ctx, living := planning.Options(s.t).ToContext(s.t.Context()), map[string]bool{}
	for _, nodeClaim := range s.claims() {
		living[nodeClaim.Name] = true
		s.core.Cluster.UpdateNodeClaim(&nodeClaim)
	}
	for _, name := range s.nodeClaims {
		if !living[name] {
			s.core.Cluster.DeleteNodeClaim(name)
		}
	}
	s.core.Provisioner.TriggerReconcile()
	_, _ = s.core.Provisioner.Reconcile(ctx)
	for _, nodeClaim := range s.claims() {
		_, _ = s.lifecycle.Reconcile(ctx, &nodeClaim)
	}
	for _, machine := range s.machinesLeft() {
		_, _ = s.garbage.Reconcile(ctx, &machine)
	}
	s.clock.Step(10 * time.Second)
	s.check()
}

func (s *gangSite) machinesLeft() []v1alpha1.Machine {
	s.t.Helper()
	return s.list(&v1alpha1.MachineList{}).(*v1alpha1.MachineList).Items
}

func (s *gangSite) claims() []karpv1.NodeClaim {
	s.t.Helper()
	nodeClaims := &karpv1.NodeClaimList{}
	s.must(s.tenant.List(s.t.Context(), nodeClaims))
	return nodeClaims.Items
}

// served are how many servers the gang has, by domain. Those that are being given back are not among them.
func (s *gangSite) served() map[string]int {
	s.t.Helper()
	domains := map[string]int{}
	for _, machine := range s.machinesLeft() {
		if host, has := machine.Host(); has && machine.DeletionTimestamp.IsZero() {
			domains[host.Name[:len("n1")]]++
		}
	}
	return domains
}

// check checks what must hold at any moment: the gang has no server in a domain, or all that it needs. One that an accident has befallen
// has fewer.
func (s *gangSite) check() {
	s.t.Helper()
	for domain, servers := range s.served() {
		if servers != gangSize && domain != s.accident {
			s.t.Fatalf("the gang has %d servers in %s, and needs %d or none", servers, domain, gangSize)
		}
	}
	living := slices.DeleteFunc(s.claims(), func(nodeClaim karpv1.NodeClaim) bool { return !nodeClaim.DeletionTimestamp.IsZero() })
	if len(living) > gangSize {
		s.t.Fatalf("%d NodeClaims are there for %d pods", len(living), gangSize)
	}
}

// until makes rounds until the gang has these servers, all its NodeClaims know theirs, and nothing happens any more.
func (s *gangSite) until(want map[string]int) {
	s.t.Helper()
	var last string
	quiet := 0
	for range maxRounds {
		s.round()
		claims, launched, machines := s.claims(), 0, s.machinesLeft()
		for _, nodeClaim := range claims {
			if nodeClaim.Status.ProviderID != "" {
				launched++
			}
		}
		last = fmt.Sprintf("%d NodeClaims, of which %d are launched, and %d Machines", len(claims), launched, len(machines))
		count := want["n1"] + want["n2"]
		if maps.Equal(s.served(), want) && len(claims) == count && launched == count && len(machines) == count {
			quiet++
		} else {
			quiet = 0
		}
		if quiet == quietRounds {
			return
		}
	}
	s.t.Fatalf("the gang has servers in %v, want %v; there are %s", s.served(), want, last)
}

// loseServer has a free server, or one of the gang, be gone for good.
func (s *gangSite) loseServer(name string) {
	s.t.Helper()
	key := types.NamespacedName{Namespace: metal3, Name: name}
	s.must(s.api.Delete(s.t.Context(), &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
	s.inventory.DeleteHost(key)
}

// TestGangOfAKilledProvider kills the provider after each of its writes for a gang, and before the first. The next one claims all servers
// that the gang needs, and no others. If one of them is gone meanwhile, it claims none before there is another.
func TestGangOfAKilledProvider(t *testing.T) {
	all, none := map[string]int{"n2": gangSize}, map[string]int{}
	undisturbed := newGangSite(t, &faults.Connection{})
	undisturbed.until(all)
	writes := undisturbed.connection.Writes()
	for _, verb := range []string{"create *v1.NodeClaim", "create *v1alpha1.Machine", "patch status of *v1.NodeClaim"} {
		if count := lo.Count(writes, verb); count < gangSize {
			t.Fatalf("of the writes %q, %d are to %s", writes, count, verb)
		}
	}
	for write := range len(writes) + 1 {
		t.Run(fmt.Sprintf("Write%02d", write), func(t *testing.T) {
			newGangSite(t, &faults.Connection{Kind: faults.Crash, At: write}).until(all)
		})
		t.Run(fmt.Sprintf("Write%02dServerLost", write), func(t *testing.T) {
			s, want := newGangSite(t, &faults.Connection{Kind: faults.Crash, At: write}), all
			s.crashed = func() {
				if len(s.served()) == 0 {
					want = none
					s.loseServer("n2-0")
				}
			}
			for range maxRounds {
				if s.round(); write == len(writes) || s.connection.Dead() {
					break
				}
			}
			s.round()
			s.until(want)
			if len(want) == 0 {
				s.addServer("n2-spare", "n2")
				s.until(all)
			}
		})
	}
}

// TestGangOfAProviderKilledWhileItMoves is the same for a gang whose servers are given back for others: one of them is gone for good, and
// another domain has room for all.
func TestGangOfAProviderKilledWhileItMoves(t *testing.T) {
	system.Only(t)
	moved := func(t *testing.T, connection *faults.Connection) *gangSite {
		t.Helper()
		s := newGangSite(t, &faults.Connection{})
		s.until(map[string]int{"n2": gangSize})
		s.addServer("n1-spare", "n1")
		s.accident = "n2"
		machine := s.machinesLeft()[0]
		s.must(s.tenant.Delete(t.Context(), &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: machine.Name}}))
		s.round()
		s.loseServer(machine.Status.HostRef.Name)
		s.connection = connection
		s.startProvider()
		s.until(map[string]int{"n1": gangSize})
		return s
	}
	writes := moved(t, &faults.Connection{}).connection.Writes()
	if count := lo.Count(writes, "delete *v1.NodeClaim"); count != gangSize-1 {
		t.Fatalf("of the writes %q, %d give servers back", writes, count)
	}
	for write := range len(writes) + 1 {
		t.Run(fmt.Sprintf("Write%02d", write), func(t *testing.T) { moved(t, &faults.Connection{Kind: faults.Crash, At: write}) })
	}
}
