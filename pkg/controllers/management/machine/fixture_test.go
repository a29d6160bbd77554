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
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/ipam"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	fleetusage "github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

const checksum = "d41d8cd98f00b204e9800998ecf8427e"

// fixture has servers of one type in a namespace of Metal3 and the Machines of a tenant in another. Nothing runs by itself:
// the test makes rounds, and in a round every controller reconciles everything once.
type fixture struct {
	t *testing.T
	// api is where everything is stored: in memory for most tests, on an API server for some.
	api               *env.Environment
	client            client.Client
	metal3, tenant    string
	nodeType, osImage string
	// reboots are what Metal3 has been asked for, host by host.
	reboots map[string][]string
	// clock of the processes that are started.
	clock clock.PassiveClock
	// others are the namespaces of more tenants, whose Machines the processes look after, too.
	others []string
	// hangs makes Metal3 never finish writing an image.
	hangs bool
	// byHand is true after a claim was removed by hand, which the record can follow only afterwards.
	byHand bool
	// processes are all that were started.
	processes []*process
	// claimsSeen are those that hosts were seen with, for the record.
	claimsSeen map[claimID]bool
	// cleanedInside are the hosts whose disks were last erased in the network of their tenant, and networked the Machines with such a
	// network.
	cleanedInside map[string]bool
	networked     map[types.UID]bool
}

// newFixture makes a fixture of its own in memory.
func newFixture(t *testing.T, servers int) *fixture {
	t.Helper()
	return newFixtureOn(t, env.Fake(t), servers)
}

func newFixtureOn(t *testing.T, api *env.Environment, servers int) *fixture {
	t.Helper()
	w := &fixture{t: t, api: api, client: api.Client, metal3: api.Namespace(t), tenant: api.Namespace(t), reboots: map[string][]string{},
		clock: clock.RealClock{}, claimsSeen: map[claimID]bool{}, cleanedInside: map[string]bool{}, networked: map[types.UID]bool{}}
	w.nodeType, w.osImage = "type-"+w.metal3, "image-"+w.metal3
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: "provider-" + w.metal3}}
	provider.Spec.Metal3.ClusterRef.Namespace = w.metal3
	nodeType := &v1alpha1.NodeType{ObjectMeta: metav1.ObjectMeta{Name: w.nodeType}}
	nodeType.Spec.ProviderRef.Name = provider.Name
	nodeType.Spec.Resources = env.Resources("cpu", "8", "memory", "32Gi")
	nodeType.Spec.Properties = map[string]string{v1alpha1.PropertyOSImage: w.osImage}
	osImage := &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: w.osImage}}
	osImage.Spec.Properties = map[string]string{
		v1alpha1.PropertyImageURL: "http://images.example.com/os.qcow2", v1alpha1.PropertyImageChecksum: checksum,
	}
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant, Name: "tenant"}}
	tenant.Spec.APIServerEndpoint = "tenant.example.com:6443"
	all := []string{"*"}
	tenant.Spec.TenantProperties = &v1alpha1.TenantProperties{Keys: all, OSImages: all, SSHKeys: all, MachineConfigTemplates: all}
	tenant.Spec.StandAloneMachines = v1alpha1.StandAloneAllowed
	for _, object := range []client.Object{provider, nodeType, osImage, tenant} {
		w.create(object)
	}
	for n := range servers {
		w.api.CreateHost(t, env.AvailableHost(w.metal3, fmt.Sprintf("server-%02d", n), nil))
	}
	return w
}

func (w *fixture) create(object client.Object) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), object); err != nil {
		w.t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
	}
}

// machine makes a Machine of the fixture's type, for the tenant unless change says otherwise.
func (w *fixture) machine(name string, change func(*v1alpha1.Machine)) types.NamespacedName {
	w.t.Helper()
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant, Name: name}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: w.nodeType}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "tenant"}
	if change != nil {
		change(machine)
	}
	w.create(machine)
	return client.ObjectKeyFromObject(machine)
}

// userData makes the Secret that the provider would make.
func (w *fixture) userData(name string) {
	w.t.Helper()
	w.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant, Name: name},
		Data:       map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config")},
	})
}

// get returns the Machine, nil if it does not exist.
func (w *fixture) get(key types.NamespacedName) *v1alpha1.Machine {
	w.t.Helper()
	machine := &v1alpha1.Machine{}
	err := w.client.Get(context.Background(), key, machine)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return machine
}

// edit changes a Machine the way its owner would.
func (w *fixture) edit(key types.NamespacedName, change func(*v1alpha1.Machine)) {
	w.t.Helper()
	machine := w.get(key)
	before := machine.DeepCopy()
	change(machine)
	if err := w.client.Patch(w.t.Context(), machine, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) hosts() []bmov1alpha1.BareMetalHost {
	w.t.Helper()
	list := &bmov1alpha1.BareMetalHostList{}
	if err := w.client.List(context.Background(), list, client.InNamespace(w.metal3)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func (w *fixture) machines() []v1alpha1.Machine {
	w.t.Helper()
	var all []v1alpha1.Machine
	for _, namespace := range append([]string{w.tenant}, w.others...) {
		list := &v1alpha1.MachineList{}
		if err := w.client.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, list.Items...)
	}
	return all
}

func (w *fixture) secrets() []corev1.Secret {
	w.t.Helper()
	list := &corev1.SecretList{}
	if err := w.client.List(context.Background(), list, client.InNamespace(w.metal3)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// addresses are those of the fixture's Machines.
func (w *fixture) addresses() []v1alpha1.IPAddress {
	w.t.Helper()
	list := &v1alpha1.IPAddressList{}
	if err := w.client.List(context.Background(), list); err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(address v1alpha1.IPAddress) bool { return address.Spec.MachineRef.Namespace != w.tenant })
}

// process is one run of the manager, with a memory of its own and a connection that the test may tamper with.
type process struct {
	*Reconciler
	inventory *inventory.Inventory
	fixture   *fixture
	events    <-chan string
	// sweeps is false for a process without the controllers that sweep up.
	sweeps bool
	// backwards makes the process look at the last Machine first.
	backwards bool
	// random has the process look at objects in any order, and at each up to three times or not at all.
	random *rand.Rand
}

func (w *fixture) start(connection client.Client) *process {
	return w.startWith(connection, connection)
}

// startWith starts a process that reads from a cache, and past it.
func (w *fixture) startWith(connection, live client.Client) *process {
	p := w.startUnsynced(connection, live)
	p.inventory.SetType(w.profile())
	p.inventory.MarkTypesSynced()
	p.inventory.MarkHostsSynced()
	return p
}

// behind is a cache of Machines that is behind: each Machine is as old says, or does not exist if old is nil.
func behind(direct client.WithWatch, old *v1alpha1.Machine) client.WithWatch {
	return interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			machine, is := object.(*v1alpha1.Machine)
			switch {
			case !is:
				return c.Get(ctx, key, object, options...)
			case old == nil:
				return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("machines").GroupResource(), key.Name)
			}
			old.DeepCopyInto(machine)
			return nil
		},
	})
}

// startUnsynced starts a process that knows no host and no type, as in the first moments of a leader.
func (w *fixture) startUnsynced(connection, live client.Client) *process {
	hosts := inventory.NewInventory(inventory.Options{})
	recorder := events.NewFakeRecorder(1000)
	p := &process{inventory: hosts, fixture: w, events: recorder.Events, sweeps: true, Reconciler: New(Dependencies{
		Client: connection, Live: live,
		Inventory: hosts,
		Recorder:  recorder, Clock: w.clock,
		Record: usage.Record{Client: connection, Live: live, Clock: w.clock, Retention: usage.DefaultRetention},
	})}
	w.processes = append(w.processes, p)
	return p
}

// profile is what the inventory knows of the fixture's type.
func (w *fixture) profile() inventory.Profile {
	return inventory.Profile{
		Name: w.nodeType, MadeBy: "provider-" + w.metal3, Namespace: w.metal3, Selector: labels.Everything(),
		Resources: env.Resources("cpu", "8", "memory", "32Gi"), Cost: 1,
		Server:    capacity.Server{Resources: env.Resources("cpu", "8", "memory", "32Gi")},
		Exclusive: []string{v1alpha1.NVLinkDomainLabelKey},
	}
}

// round feeds the process what watches would, and has every controller reconcile everything once. Errors are ignored, as a
// work queue would retry them.
func (p *process) round() {
	p.fixture.t.Helper()
	ctx := context.Background()
	for _, host := range p.fixture.hosts() {
		p.inventory.SetHost(&host)
	}
	machines := p.fixture.machines()
	if p.backwards {
		slices.Reverse(machines)
	}
	for _, machine := range visits(p, machines) {
		_, _ = p.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machine)})
	}
	for _, server := range visits(p, p.fixture.recorded()) {
		_, _ = (&usage.Controller{Record: p.hosts.Record}).Reconcile(ctx, reconcile.Request{NamespacedName: server})
	}
	if !p.sweeps {
		return
	}
	for _, host := range visits(p, p.fixture.hosts()) {
		_, _ = OrphanHosts{p.servers, p.inventory, p.recorder}.Reconcile(ctx,
			reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&host)})
	}
	for _, address := range visits(p, p.fixture.addresses()) {
		_, _ = p.addressSweep().Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&address)})
	}
	for _, secret := range visits(p, p.fixture.secrets()) {
		_, _ = OrphanSecrets{p.servers}.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&secret)})
	}
}

// visits are the objects in the order in which a round of the process looks at them.
func visits[T any](p *process, objects []T) []T {
	if p.random == nil {
		return objects
	}
	var order []T
	for _, object := range objects {
		order = append(order, slices.Repeat([]T{object}, []int{0, 1, 1, 1, 2, 3}[p.random.IntN(6)])...)
	}
	p.random.Shuffle(len(order), func(a, b int) { order[a], order[b] = order[b], order[a] })
	return order
}

func (p *process) addressSweep() *ipam.Sweep {
	return ipam.NewSweep(ipam.Allocator{Client: p.client, Live: p.live}, HoldsServer(p.live))
}

// reported returns whether an event of the process has the text in it.
func (p *process) reported(text string) bool {
	for {
		select {
		case event := <-p.events:
			if strings.Contains(event, text) {
				return true
			}
		default:
			return false
		}
	}
}

// maxRounds is far more than any cycle takes. Reaching it means that nothing moves any more.
const maxRounds = 40

// until makes rounds until the fixture is as it should be, and checks after each that no rule is broken. running is
// asked for the process before each round.
func (w *fixture) until(what string, running func() *process, reached func() bool) {
	w.t.Helper()
	for range maxRounds {
		running().round()
		w.checkClaims()
		if reached() {
			return
		}
		w.playMetal3()
	}
	for _, machine := range w.machines() {
		w.t.Logf("Machine %s: %+v", machine.Name, machine.Status)
	}
	for _, host := range w.hosts() {
		w.t.Logf("host %s: consumer %v, image %v, online %v, status %+v", host.Name, host.Spec.ConsumerRef, host.Spec.Image, host.Spec.Online,
			host.Status)
	}
	w.t.Fatalf("after %d rounds still not %s", maxRounds, what)
}

// checkClaims checks what must hold at any moment: a host is claimed by at most one Machine. (That a Machine claims at
// most one host holds only once the orphan sweep is through, and is checked by checkNothingLeft and its callers.)
func (w *fixture) checkClaims() {
	w.t.Helper()
	claimedBy := map[string]string{}
	for _, machine := range w.machines() {
		if machine.Status.ProviderID == "" || machine.Status.HostRef == nil ||
			condition(&machine, v1alpha1.ConditionClaimed).Status != metav1.ConditionTrue {
			continue
		}
		host := machine.Status.HostRef.Name
		if other, taken := claimedBy[host]; taken {
			w.t.Fatalf("host %s is claimed by Machines %s and %s", host, machine.Name, other)
		}
		claimedBy[host] = machine.Name
	}
	w.checkRecord()
	w.checkCleaned()
}

// claimID is one claim of a Machine on a host.
type claimID struct {
	host    string
	machine types.UID
	since   int64
}

// records are those of the servers, by name.
func (w *fixture) records() map[string]v1alpha1.HostUsageSpec {
	w.t.Helper()
	list := &v1alpha1.HostUsageList{}
	if err := w.client.List(context.Background(), list, client.InNamespace(w.metal3)); err != nil {
		w.t.Fatal(err)
	}
	records := map[string]v1alpha1.HostUsageSpec{}
	for _, record := range list.Items {
		records[record.Name] = record.Spec
	}
	return records
}

// recorded are the servers that there are, and those that there is a record of.
func (w *fixture) recorded() []types.NamespacedName {
	w.t.Helper()
	names := w.records()
	for _, host := range w.hosts() {
		names[host.Name] = v1alpha1.HostUsageSpec{}
	}
	var keys []types.NamespacedName
	for _, name := range slices.Sorted(maps.Keys(names)) {
		keys = append(keys, types.NamespacedName{Namespace: w.metal3, Name: name})
	}
	return keys
}

// checkRecord checks what must hold of the record at any moment: uses do not overlap, no claim is there twice, and a server that was
// given back has no use without an end. What was claimed in an earlier round is there, unless a fault still keeps it out: then it is on
// the host.
func (w *fixture) checkRecord() {
	w.t.Helper()
	records, standing := w.records(), map[claimID]bool{}
	for _, host := range w.hosts() {
		claim := fleetusage.ClaimOn(&host)
		if claim != nil && !claim.Start.IsZero() {
			standing[claimID{host.Name, claim.Machine.UID, claim.Start.UnixMicro()}] = true
		}
		uses := records[host.Name].Uses
		if open := len(uses) > 0 && uses[len(uses)-1].End == nil; claim == nil && open && !w.byHand {
			w.t.Fatalf("host %s was given back before the end of its use was recorded", host.Name)
		}
	}
	found := map[claimID]bool{}
	for name, record := range records {
		for i, use := range record.Uses {
			if i > 0 && (record.Uses[i-1].End == nil || use.Start.Before(record.Uses[i-1].End)) {
				w.t.Fatalf("host %s: uses %+v and %+v overlap", name, record.Uses[i-1], use)
			}
			id := claimID{name, use.Machine.UID, use.Start.UnixMicro()}
			if use.Claimed != nil {
				id.since = use.Claimed.UnixMicro()
			}
			if found[id] {
				w.t.Fatalf("host %s: the claim of Machine %s is recorded twice", name, use.Machine.Name)
			}
			found[id] = true
		}
	}
	// Of the short uses, which the rounds make, only the number is left.
	folded, missing := map[string]int64{}, map[string]int64{}
	for name, record := range records {
		for _, uses := range record.Folded {
			folded[name] += uses.Count
		}
	}
	for id := range w.claimsSeen {
		if !found[id] && !standing[id] {
			missing[id.host]++
		}
	}
	for host, count := range missing {
		if count > folded[host] {
			w.t.Fatalf("host %s: %d claims are not recorded, and %d are folded", host, count, folded[host])
		}
	}
	maps.Copy(w.claimsSeen, standing)
}

// checkNothingLeft checks that every server is back in the pool and nothing of any Machine is left.
func (w *fixture) checkNothingLeft() {
	w.t.Helper()
	for _, machine := range w.machines() {
		w.t.Errorf("Machine %s is left, finalizers %v", machine.Name, machine.Finalizers)
	}
	for _, secret := range w.secrets() {
		w.t.Errorf("Secret %s is left", secret.Name)
	}
	for _, address := range w.addresses() {
		w.t.Errorf("IPAddress %s is left", address.Name)
	}
	for _, host := range w.hosts() {
		if eligibility := inventory.EligibilityOf(&host); !eligibility.Claimable {
			w.t.Errorf("host %s is not back in the pool: it %s", host.Name, eligibility.Message)
		}
		if slices.ContainsFunc(slices.Collect(maps.Keys(host.Annotations)),
			func(key string) bool { return key != "touched" && host.Annotations[key] != operators }) ||
			host.Spec.UserData != nil && strings.HasSuffix(host.Spec.UserData.Name, "-user-data") || host.Spec.Online {
			w.t.Errorf("host %s is left with annotations %v, user data %v, online %v", host.Name, host.Annotations, host.Spec.UserData,
				host.Spec.Online)
		}
	}
}

func metaName(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func metaIn(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// spare is a server without a claim.
func spare(w *fixture) *bmov1alpha1.BareMetalHost { return env.AvailableHost(w.metal3, "spare", nil) }
