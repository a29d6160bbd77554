// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// fabrics is a fixture whose servers are in NVLink domains, and that knows whose each server is, whatever the manager thinks.
type fabrics struct {
	*disks
	// claimed are the consumers that servers were seen with last.
	claimed map[string]types.UID
	// joined counts the claims in a domain where the tenant had a server, and turned those of a domain that another had before.
	joined, turned int
	domainOf       map[string]string
}

func newFabrics(t *testing.T, servers, tenants, domains int) *fabrics {
	t.Helper()
	return newFabricsOn(t, env.Fake(t), servers, tenants, domains)
}

func newFabricsOn(t *testing.T, api *env.Environment, servers, tenants, domains int) *fabrics {
	t.Helper()
	f := &fabrics{disks: newDisksOn(t, api, servers, tenants), claimed: map[string]types.UID{}, domainOf: map[string]string{}}
	for n, host := range f.hosts() {
		f.label(host.Name, fmt.Sprintf("n%d", n%domains))
	}
	return f
}

// label moves a server to another domain, to none if that is empty.
func (f *fabrics) label(name, domain string) {
	f.t.Helper()
	f.edithost(name, func(host *bmov1alpha1.BareMetalHost) {
		host.Labels = map[string]string{v1alpha1.NVLinkDomainLabelKey: domain}
	})
}

// tenantsOf are the namespaces that have a server, or have left something on it.
func (f *fabrics) tenantsOf(host *bmov1alpha1.BareMetalHost) map[string]bool {
	tenants := map[string]bool{}
	if consumer := host.Spec.ConsumerRef; consumer != nil {
		tenants[consumer.Namespace] = true
	}
	if quarantine, ours := inventory.QuarantineOf(host); ours {
		tenants[quarantine.Machine.Namespace] = true
	}
	maps.Copy(tenants, f.holds[host.Name])
	return tenants
}

// check fails the test if a server was claimed since the last call that is in a domain of another tenant.
func (f *fabrics) check(when string) {
	f.t.Helper()
	servers := f.hosts()
	for _, host := range servers {
		consumer, _ := hosts.ConsumerOf(&host)
		before := f.claimed[host.Name]
		f.claimed[host.Name] = consumer.UID
		domain := host.Labels[v1alpha1.NVLinkDomainLabelKey]
		if consumer.UID == "" || consumer.UID == before || domain == "" {
			continue
		}
		for _, other := range servers {
			if other.Name == host.Name || other.Labels[v1alpha1.NVLinkDomainLabelKey] != domain {
				continue
			}
			for tenant := range f.tenantsOf(&other) {
				if tenant != consumer.Namespace {
					f.t.Fatalf("%s: server %s of domain %s was claimed for %s, and server %s there is that of %s (consumer %v, annotations %v)", when,
						host.Name, domain, consumer.Namespace, other.Name, tenant, other.Spec.ConsumerRef, other.Annotations)
				}
				f.joined++
			}
		}
		if last := f.domainOf[domain]; last != "" && last != consumer.Namespace {
			f.turned++
		}
		f.domainOf[domain] = consumer.Namespace
	}
}

// TestNoTwoTenantsInOneFabric plays random histories of tenants that ask for servers, give them back, call them faulty or are deleted by
// force, of operators who move servers between domains and switch the cleaning off, and of a manager that dies after any write or whose
// watches are late. No server is ever claimed in a domain where another tenant has one, or has left something.
func TestNoTwoTenantsInOneFabric(t *testing.T) {
	const histories, steps, servers = 30, 150, 6
	joined, turned := 0, 0
	for seed := range uint64(histories) {
		random := rand.New(rand.NewPCG(seed, 11))
		f := newFabrics(t, servers, 3, 2)
		tenants := append([]string{f.tenant}, f.others...)
		connection := &faults.Connection{}
		var manager *process
		feed := func() {
			for _, host := range f.hosts() {
				manager.inventory.SetHost(&host)
			}
		}
		restart := func(next *faults.Connection) {
			connection, manager = next, f.start(next.Client(f.api.Client))
			feed()
		}
		restart(connection)
		for step := range steps {
			machines := f.machines()
			switch random.IntN(14) {
			case 0, 1, 2:
				if len(machines) < 6 {
					f.ask(tenants[random.IntN(len(tenants))], fmt.Sprintf("m%d", step))
				}
			case 3, 4:
				if len(machines) == 0 {
					break
				}
				machine := machines[random.IntN(len(machines))]
				if random.IntN(4) == 0 {
					f.edit(client.ObjectKeyFromObject(&machine), func(machine *v1alpha1.Machine) { machine.ReportNode(reportFault) })
				}
				_ = f.client.Delete(t.Context(), &machine)
				if random.IntN(4) == 0 {
					before := machine.DeepCopy()
					machine.Finalizers = nil
					_ = f.client.Patch(t.Context(), &machine, client.MergeFrom(before))
				}
			case 5:
				modes := []bmov1alpha1.AutomatedCleaningMode{bmov1alpha1.CleaningModeDisabled, bmov1alpha1.CleaningModeMetadata,
					bmov1alpha1.CleaningModeMetadata, bmov1alpha1.CleaningModeMetadata}
				f.cleaning(fmt.Sprintf("server-%02d", random.IntN(servers)), modes[random.IntN(len(modes))])
			case 6:
				restart(&faults.Connection{Kind: faults.Crash, At: random.IntN(6)})
			case 7:
				if random.IntN(3) == 0 {
					f.label(fmt.Sprintf("server-%02d", random.IntN(servers)), []string{"n0", "n1", ""}[random.IntN(3)])
					feed()
				}
			case 8: // an operator has looked at what is quarantined, and erased what was not cleaned
				for _, host := range f.hosts() {
					if host.Spec.ConsumerRef == nil && random.IntN(3) == 0 {
						delete(f.holds, host.Name)
						f.edithost(host.Name, func(host *bmov1alpha1.BareMetalHost) {
							delete(host.Annotations, v1alpha1.QuarantinedAnnotationKey)
							delete(host.Annotations, v1alpha1.LastTenantAnnotationKey)
						})
					}
				}
			case 9, 10:
				f.play()
			case 11: // the watch of hosts is late
				for _, machine := range machines {
					_, _ = manager.Reconcile(context.Background(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machine)})
				}
			default:
				if connection.Dead() {
					restart(&faults.Connection{})
				}
				manager.round()
			}
			f.check(fmt.Sprintf("seed %d, step %d", seed, step))
		}
		joined, turned = joined+f.joined, turned+f.turned
	}
	if joined < histories || turned < histories/2 {
		t.Errorf("%d claims in a domain of the same tenant, %d in one that another had before: the histories prove nothing", joined, turned)
	}
	t.Logf("%d claims in a domain of the same tenant, %d in one that another had before", joined, turned)
}

// TestTenantsRaceForFabric: many tenants ask at once for servers of one domain, and workers bind at the same time. One tenant gets them.
// The first races are on an API server.
func TestTenantsRaceForFabric(t *testing.T) {
	for seed := range 20 {
		api := &environment
		if seed >= 5 {
			api = env.Fake(t)
		}
		f := newFabricsOn(t, api, 4, 4, 1)
		var keys []types.NamespacedName
		for _, tenant := range append([]string{f.tenant}, f.others...) {
			for n := range 2 {
				keys = append(keys, f.ask(tenant, fmt.Sprintf("m%d", n)))
			}
		}
		manager := f.start(slowly(f.api.Client))
		for _, host := range f.hosts() {
			manager.inventory.SetHost(&host)
		}
		for range 3 {
			var workers sync.WaitGroup
			for _, key := range keys {
				workers.Go(func() { _, _ = manager.Reconcile(context.Background(), reconcile.Request{NamespacedName: key}) })
			}
			workers.Wait()
			f.check(fmt.Sprintf("race %d", seed))
		}
		owners := map[string]int{}
		for _, host := range f.hosts() {
			if consumer, claimed := hosts.ConsumerOf(&host); claimed {
				owners[consumer.Namespace]++
			}
		}
		if len(owners) != 1 {
			t.Fatalf("race %d: servers of one domain were claimed for %v, want one tenant", seed, owners)
		}
	}
}

// TestFabricIsHeldWhileClaimed: what a manager had decided before it was restarted gives no domain to two tenants, however far it came.
func TestFabricIsHeldWhileClaimed(t *testing.T) {
	for writes := range 4 {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("after %d writes, first %v", writes, first), func(t *testing.T) {
				f := newFabrics(t, 2, 2, 1)
				mine := f.ask(f.tenant, "mine")
				paused := func(host *bmov1alpha1.BareMetalHost) {
					metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.PausedAnnotation, "")
				}
				f.edithost("server-00", paused) // so that the other would get this one
				// The claim fails, so that the status says what was chosen.
				failing := interceptor.NewClient(f.api.Client, interceptor.Funcs{
					Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
						if _, host := object.(*bmov1alpha1.BareMetalHost); host {
							return context.DeadlineExceeded
						}
						return c.Patch(ctx, object, patch, options...)
					},
				})
				before := f.start((&faults.Connection{Kind: faults.Crash, At: writes}).Client(failing))
				before.sweeps = false
				before.round()
				f.edithost("server-00", func(host *bmov1alpha1.BareMetalHost) { delete(host.Annotations, bmov1alpha1.PausedAnnotation) })
				theirs := f.ask(f.others[0], "theirs")
				after := f.start(f.client)
				after.backwards = !first
				f.until("claimed", func() *process { return after }, func() bool {
					f.check("restarted")
					return f.get(mine).Status.ProviderID != "" || f.get(theirs).Status.ProviderID != ""
				})
				for range 3 {
					after.round()
					f.check("later")
				}
				if f.get(mine).Status.ProviderID != "" && f.get(theirs).Status.ProviderID != "" {
					t.Error("both tenants have a server of the domain")
				}
			})
		}
	}
}

// TestFabricIsHeldAcrossFailOvers: managers die one after the other while claims fail, and the next knows all hosts
// when it decides, or none yet. No domain gets two tenants.
func TestFabricIsHeldAcrossFailOvers(t *testing.T) {
	f := newFabrics(t, 2, 2, 1)
	mine, theirs := f.ask(f.tenant, "mine"), f.ask(f.others[0], "theirs")
	failing := interceptor.NewClient(f.api.Client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, host := object.(*bmov1alpha1.BareMetalHost); host {
				return context.DeadlineExceeded
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	// decide has a manager of its own look at one Machine. It knows all hosts but those that are left out.
	decide := func(key types.NamespacedName, leftOut string, change func(*bmov1alpha1.BareMetalHost)) {
		t.Helper()
		manager := f.start(failing)
		for _, host := range f.hosts() {
			if change(&host); host.Name != leftOut {
				manager.inventory.SetHost(&host)
			}
		}
		_, _ = manager.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	}
	decide(mine, "", func(*bmov1alpha1.BareMetalHost) {})
	if chosen := f.get(mine).Status.HostRef; chosen == nil || chosen.Name != "server-00" {
		t.Fatalf("the first manager has chosen %v, want server-00", chosen)
	}
	// Metal3 does not look at the server for a while, so that the other would get the second one.
	decide(theirs, "", func(host *bmov1alpha1.BareMetalHost) {
		if host.Name == "server-00" {
			metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.PausedAnnotation, "")
		}
	})
	if chosen := f.get(theirs).Status.HostRef; chosen != nil {
		t.Errorf("server %s was chosen for another tenant in the domain of a server that a Machine carries as its choice", chosen.Name)
	}
	decide(theirs, "server-00", func(*bmov1alpha1.BareMetalHost) {}) // the host was registered anew, and its Machine is as it was
	if chosen := f.get(theirs).Status.HostRef; chosen == nil || chosen.Name != "server-01" {
		t.Fatalf("a manager that does not know server-00 has chosen %v, want server-01", chosen)
	}
	unsynced := f.startUnsynced(f.client, f.client)
	for _, key := range []types.NamespacedName{mine, theirs} {
		unsynced.look(key)
		f.check("the inventory is empty")
	}
	for _, host := range f.hosts() {
		if host.Spec.ConsumerRef != nil {
			t.Errorf("server %s was claimed by a manager that knows no host", host.Name)
		}
	}
	after := f.start(f.client)
	f.until("claimed", func() *process { return after }, func() bool {
		f.check("the inventory is full")
		return f.get(mine).Status.ProviderID != "" || f.get(theirs).Status.ProviderID != ""
	})
	for range 3 {
		after.round()
		f.check("later")
	}
}

// askIn makes a Machine of the first tenant that asks for a server of a domain.
func (f *fabrics) askIn(name, domain string) types.NamespacedName {
	f.t.Helper()
	f.create(&corev1.Secret{ObjectMeta: metaIn(f.tenant, name), Data: map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config")}})
	return f.machine(name, func(machine *v1alpha1.Machine) {
		machine.Spec.NodeTypeRef, machine.Spec.Bootstrap.DataSecretName = nil, name
		machine.Spec.Requirements = []corev1.NodeSelectorRequirement{{Key: v1alpha1.NVLinkDomainLabelKey,
			Operator: corev1.NodeSelectorOpIn, Values: []string{domain}}}
	})
}

// TestTenantHoldsFewDomains: a tenant asks for one server in each of four domains of three servers. It gets the domains
// that its quota would fill, or as many as the quota names. The others are for another tenant.
func TestTenantHoldsFewDomains(t *testing.T) {
	few, refused := ptr.To[int64], "TenantCluster TENANT/tenant has servers in nvlink-domain "
	for name, tc := range map[string]struct {
		reason string
		quota  *v1alpha1.Quota
		first  int // servers that it has in n0 before
		want   []string
		says   string
	}{
		"NoQuota": {reason: "it may have all servers", want: []string{"n0", "n1", "n2", "n3"}},
		"OneDomain": {reason: "three servers fill a domain", quota: &v1alpha1.Quota{Servers: few(3)}, want: []string{"n0"},
			says: refused + "n0, where 2 more are free, and its spec.quota lets it have no more than those: it gets none in nvlink-domain n1, " +
				"which would be for no other tenant then: ask for one where it has some, or raise spec.quota.domains"},
		"TwoDomains": {reason: "the fourth server is in no domain of three", quota: &v1alpha1.Quota{Servers: few(4)}, want: []string{"n0", "n1"},
			says: refused + "n0, n1, where 4 more are free"},
		"Full": {reason: "its domain has none for it any more", quota: &v1alpha1.Quota{Servers: few(5)}, first: 3,
			want: []string{"n0", "n1"}, says: refused + "n0, n1, where 2 more are free"},
		"Spread": {reason: "the platform says so", quota: &v1alpha1.Quota{Servers: few(4), Domains: few(3)}, want: []string{"n0", "n1", "n2"},
			says: refused + "n0, n1, n2, as many as its spec.quota.domains allows: it gets none in nvlink-domain n3, which "},
		"DomainsAlone": {reason: "it is a bound of its own", quota: &v1alpha1.Quota{Domains: few(1)}, want: []string{"n0"},
			says: refused + "n0, as many as its spec.quota.domains allows"},
		"NoDomain": {reason: "none is a number", quota: &v1alpha1.Quota{Domains: few(0)},
			says: "TenantCluster TENANT/tenant has servers in no nvlink-domain, as many as its spec.quota.domains allows"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFabrics(t, 12, 2, 4)
			update(f.fixture, &v1alpha1.TenantCluster{ObjectMeta: metaIn(f.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
				tenant.Spec.Quota = tc.quota
			})
			manager := f.start(f.client)
			var first types.NamespacedName
			for n := range tc.first {
				first = f.askIn(fmt.Sprint("first-", n), "n0")
				manager.round()
			}
			var got []string
			var last *v1alpha1.Machine
			for n := range 4 {
				key := f.askIn(fmt.Sprint("grab-", n), fmt.Sprint("n", n))
				if n == 0 && tc.first > 0 {
					key = first
				}
				for range 3 {
					manager.round()
				}
				if machine := f.get(key); machine.Status.ProviderID != "" {
					got = append(got, fmt.Sprint("n", n))
				} else if last == nil {
					last = machine
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: it has servers in %v, want %v", tc.reason, got, tc.want)
			}
			if last != nil {
				says := condition(last, v1alpha1.ConditionReady)
				want := "no server available: " + strings.ReplaceAll(tc.says, "TENANT", f.tenant)
				if says.Reason != v1alpha1.ReasonNoCapacity || !strings.HasPrefix(says.Message, want) {
					t.Errorf("%s: the Machine says %s: %s\nwant NoCapacity: %s", tc.reason, says.Reason, says.Message, want)
				}
			}
			theirs := f.ask(f.others[0], "theirs")
			manager.round()
			if machine := f.get(theirs); (machine.Status.ProviderID != "") != (tc.quota != nil) {
				t.Errorf("%s: the other tenant: %s", tc.reason, condition(machine, v1alpha1.ConditionReady).Message)
			}
		})
	}
}

// TestWaitsForDomain: the Machine that would open a domain too many gets its server once that is allowed.
func TestWaitsForDomain(t *testing.T) {
	f := newFabrics(t, 4, 1, 2)
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metaIn(f.tenant, "tenant")}
	update(f.fixture, tenant, func(tenant *v1alpha1.TenantCluster) {
		tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To[int64](2)}
	})
	manager := f.start(f.client)
	running := func() *process { return manager }
	first := f.ask(f.tenant, "first")
	f.until("claimed", running, func() bool { return f.get(first).Status.ProviderID != "" })
	other := f.askIn("other", "n1")
	for range 3 {
		manager.round()
	}
	if machine := f.get(other); machine.Status.HostRef != nil {
		t.Fatalf("it has %v, want no server", machine.Status.HostRef)
	}
	update(f.fixture, tenant, func(tenant *v1alpha1.TenantCluster) { tenant.Spec.Quota.Domains = ptr.To[int64](2) })
	f.until("claimed", running, func() bool { return f.get(other).Status.ProviderID != "" })
}

// TestFabricIsHeldByVanishedMachine: a Machine that vanishes when it has just claimed its server holds the domain until the server is back,
// although the watch does not show the claim yet.
func TestFabricIsHeldByVanishedMachine(t *testing.T) {
	f := newFabrics(t, 2, 2, 1)
	mine, theirs := f.ask(f.tenant, "mine"), f.ask(f.others[0], "theirs")
	manager := f.start(f.client)
	first, second := f.hosts()[0], f.hosts()[1]
	manager.inventory.SetHost(&second)
	manager.look(mine)
	manager.inventory.SetHost(&first)
	machine := f.get(mine)
	if machine.Status.ProviderID == "" {
		t.Fatalf("no server was claimed: %+v", machine.Status)
	}
	f.edit(mine, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
	_ = f.client.Delete(t.Context(), machine)
	for _, key := range []types.NamespacedName{mine, theirs} {
		manager.look(key)
		f.check("vanished")
	}
	f.until("served", func() *process { return manager }, func() bool { f.check("later"); return f.get(theirs).Status.ProviderID != "" })
}

// TestFabricRefusal: the Machine of another tenant is told which domain it cannot have, and not whose it is. It waits, gets a server of
// another domain once there is one, and else of this one once that is clean.
func TestFabricRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		pin    string
		want   string
		end    func(*fabrics, types.NamespacedName)
		server string
	}{
		"given back": {reason: "the domain is free", server: "server-00", want: "no server available: TYPE: 2 servers match, 1 claimed, " +
			"0 in error, and what is free is in nvlink-domain n0: each is for another tenant until its last server there is released and clean",
			end: func(f *fabrics, mine types.NamespacedName) { _ = f.client.Delete(f.t.Context(), f.get(mine)) }},
		"another domain": {reason: "a server of another domain is free", server: "server-01", want: "is in nvlink-domain n0",
			end: func(f *fabrics, _ types.NamespacedName) { f.label("server-01", "n1") }},
		"pinned": {reason: "a pin is no way in", pin: "server-01", server: "server-01", want: "server METAL3/server-01 is in nvlink-domain n0, " +
			"which is for another tenant until its last server there is released and clean",
			end: func(f *fabrics, mine types.NamespacedName) { _ = f.client.Delete(f.t.Context(), f.get(mine)) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFabrics(t, 2, 2, 1)
			update(f.fixture, &v1alpha1.TenantCluster{ObjectMeta: metaIn(f.others[0], "tenant")}, func(tenant *v1alpha1.TenantCluster) {
				tenant.Spec.TenantProperties = &v1alpha1.TenantProperties{Keys: []string{v1alpha1.PropertyServerName}}
			})
			manager := f.start(f.client)
			running := func() *process { return manager }
			mine := f.ask(f.tenant, "mine")
			f.until("installed", running, func() bool { return f.get(mine).Status.Phase == v1alpha1.MachineProvisioned })
			theirs := f.ask(f.others[0], "theirs")
			if tc.pin != "" {
				f.edit(theirs, func(machine *v1alpha1.Machine) {
					machine.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: tc.pin}
				})
			}
			manager.round()
			f.check("refused")
			want := strings.NewReplacer("TYPE", f.nodeType, "METAL3", f.metal3).Replace(tc.want)
			refused := condition(f.get(theirs), v1alpha1.ConditionReady)
			if refused.Reason != v1alpha1.ReasonNoCapacity || !strings.Contains(refused.Message, want) ||
				strings.Contains(refused.Message, f.tenant) {
				t.Fatalf("%s: got %s: %s; want NoCapacity: %s, without the name of the tenant", tc.reason, refused.Reason, refused.Message, want)
			}
			tc.end(f, mine)
			f.play()
			f.until("served", running, func() bool { f.check("served"); return f.get(theirs).Status.ProviderID != "" })
			if got := f.get(theirs).Status.HostRef.Name; tc.server == "server-01" && got != tc.server {
				t.Errorf("%s: it got %s, want %s", tc.reason, got, tc.server)
			}
		})
	}
}

// TestFabricsAreFilled: a tenant gets servers where it has some, and a new tenant gets those of no domain, or of the emptiest.
func TestFabricsAreFilled(t *testing.T) {
	f := newFabrics(t, 9, 3, 1)
	for n, domain := range []string{"a", "a", "b", "b", "b", "c", "c", "c", ""} {
		f.label(fmt.Sprintf("server-%02d", n), domain)
	}
	manager := f.start(f.client)
	running := func() *process { return manager }
	given := func(tenant, name string) string {
		t.Helper()
		key := f.ask(tenant, name)
		f.until("claimed", running, func() bool { return f.get(key).Status.ProviderID != "" })
		f.check(name)
		for _, host := range f.hosts() {
			if host.Name == f.get(key).Status.HostRef.Name {
				return host.Labels[v1alpha1.NVLinkDomainLabelKey]
			}
		}
		return "?"
	}
	first, other, third := f.tenant, f.others[0], f.others[1]
	var got []string
	for n, tenant := range []string{first, first, other, first, third, first, other} {
		got = append(got, given(tenant, fmt.Sprintf("m%d", n)))
	}
	// The first gets the server in no domain, then the first of the emptiest, and stays there; the others get a domain each.
	if want := []string{"", "b", "c", "b", "a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("servers are given in domains %q, want %q", got, want)
	}
}
