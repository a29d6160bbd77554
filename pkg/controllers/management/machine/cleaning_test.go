// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// disks is a fixture with several tenants that knows what is on the disks of its servers, and fails the test when one that
// another tenant can read is installed.
type disks struct {
	*fixture
	// holds are the namespaces whose data a server has; missed is true for one that was not cleaned all along its deprovisioning.
	holds  map[string]map[string]bool
	missed map[string]bool
	// passedOn counts the installations of a server that another tenant had before.
	passedOn, installed int
	last                map[string]string
}

func newDisks(t *testing.T, servers, tenants int) *disks {
	t.Helper()
	return newDisksOn(t, env.Fake(t), servers, tenants)
}

func newDisksOn(t *testing.T, api *env.Environment, servers, tenants int) *disks {
	t.Helper()
	d := &disks{fixture: newFixtureOn(t, api, servers), holds: map[string]map[string]bool{}, missed: map[string]bool{},
		last: map[string]string{}}
	for range tenants - 1 {
		namespace := d.api.Namespace(t)
		tenant := &v1alpha1.TenantCluster{ObjectMeta: metaIn(namespace, "tenant")}
		tenant.Spec.APIServerEndpoint = "tenant.example.com:6443"
		d.create(tenant)
		d.others = append(d.others, namespace)
	}
	return d
}

// ask makes a Machine that has its user data.
func (d *disks) ask(namespace, name string) types.NamespacedName {
	d.t.Helper()
	d.create(&corev1.Secret{ObjectMeta: metaIn(namespace, name), Data: map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config")}})
	return d.machine(name, func(machine *v1alpha1.Machine) {
		machine.Namespace, machine.Spec.Bootstrap.DataSecretName = namespace, name
	})
}

func (d *disks) cleaning(name string, mode bmov1alpha1.AutomatedCleaningMode) {
	d.t.Helper()
	for _, host := range d.hosts() {
		if host.Name != name {
			continue
		}
		host.Spec.AutomatedCleaningMode = mode
		if err := d.client.Update(d.t.Context(), &host); err != nil {
			d.t.Fatal(err)
		}
		if host.Status.Provisioning.State == bmov1alpha1.StateDeprovisioning && mode == bmov1alpha1.CleaningModeDisabled {
			d.missed[name] = true
		}
	}
}

// play is one step of Metal3 and of the disks.
func (d *disks) play() {
	d.t.Helper()
	before := map[string]bmov1alpha1.BareMetalHost{}
	for _, host := range d.hosts() {
		before[host.Name] = host
	}
	d.playMetal3()
	for _, host := range d.hosts() {
		was, is := before[host.Name].Status.Provisioning.State, host.Status.Provisioning.State
		switch {
		case was == is:
		case is == bmov1alpha1.StateProvisioned:
			d.install(&host)
		case is == bmov1alpha1.StateDeprovisioning:
			d.missed[host.Name] = host.Spec.AutomatedCleaningMode == bmov1alpha1.CleaningModeDisabled
		case was == bmov1alpha1.StateDeprovisioning && !d.missed[host.Name]:
			delete(d.holds, host.Name)
		}
	}
}

func (d *disks) install(host *bmov1alpha1.BareMetalHost) {
	d.t.Helper()
	if host.Spec.ConsumerRef == nil {
		return
	}
	tenant := host.Spec.ConsumerRef.Namespace
	for other := range d.holds[host.Name] {
		if other != tenant {
			d.t.Fatalf("server %s has data of %s and is installed for %s; annotations %v, cleaning %q", host.Name, other, tenant,
				host.Annotations, host.Spec.AutomatedCleaningMode)
		}
	}
	if last := d.last[host.Name]; last != "" && last != tenant {
		d.passedOn++
	}
	d.installed++
	d.last[host.Name], d.holds[host.Name] = tenant, map[string]bool{tenant: true}
}

// TestNoTenantGetsDataOfAnother plays random histories of tenants that ask for servers and give them back, or are deleted by force,
// of operators who switch the cleaning off and on, and of a manager that dies after any write.
func TestNoTenantGetsDataOfAnother(t *testing.T) {
	const histories, steps = 25, 150
	passedOn, installed := 0, 0
	for seed := range uint64(histories) {
		random := rand.New(rand.NewPCG(seed, 5))
		d := newDisks(t, 3, 2)
		tenants := append([]string{d.tenant}, d.others...)
		connection := &faults.Connection{}
		manager := d.start(connection.Client(d.api.Client))
		for step := range steps {
			machines := d.machines()
			switch random.IntN(10) {
			case 0, 1:
				if len(machines) < 5 {
					d.ask(tenants[random.IntN(len(tenants))], fmt.Sprintf("m%d", step))
				}
			case 2:
				if len(machines) > 0 {
					machine := machines[random.IntN(len(machines))]
					_ = d.client.Delete(t.Context(), &machine)
					if random.IntN(4) == 0 {
						before := machine.DeepCopy()
						machine.Finalizers = nil
						_ = d.client.Patch(t.Context(), &machine, client.MergeFrom(before))
					}
				}
			case 3:
				modes := []bmov1alpha1.AutomatedCleaningMode{bmov1alpha1.CleaningModeDisabled, bmov1alpha1.CleaningModeMetadata,
					bmov1alpha1.CleaningModeMetadata}
				d.cleaning(fmt.Sprintf("server-%02d", random.IntN(3)), modes[random.IntN(len(modes))])
			case 4:
				connection = &faults.Connection{Kind: faults.Crash, At: random.IntN(6)}
				manager = d.start(connection.Client(d.api.Client))
			case 5, 6:
				d.play()
			default:
				if connection.Dead() {
					connection = &faults.Connection{}
					manager = d.start(connection.Client(d.api.Client))
				}
				manager.round()
			}
		}
		passedOn, installed = passedOn+d.passedOn, installed+d.installed
	}
	if passedOn < histories/2 {
		t.Errorf("only %d of %d installations were on a server of another tenant: the histories prove nothing", passedOn, installed)
	}
	t.Logf("%d installations, %d of them on a server that another tenant had before", installed, passedOn)
}

// TestCleaning: who gets a server after a tenant has given it back.
func TestCleaning(t *testing.T) {
	const off, enabled = bmov1alpha1.CleaningModeDisabled, bmov1alpha1.CleaningModeMetadata
	for name, tc := range map[string]struct {
		reason string
		// before is the mode while the server is used, during while it is deprovisioned, after once it is available.
		before, during, after bmov1alpha1.AutomatedCleaningMode
		anyTenant             bool
		same, other           bool
	}{
		"Cleaned": {reason: "Metal3's default", before: enabled, during: enabled, after: enabled, same: true, other: true},
		"Disabled": {reason: "another tenant could read the disks; the same one knows what is on them", before: off, during: off, after: off,
			same: true},
		"EnabledTooLate":    {reason: "that cleans nothing", before: off, during: off, after: enabled, same: true},
		"DisabledMeanwhile": {reason: "whether Metal3 has cleaned by then is unknown", before: enabled, during: off, after: enabled, same: true},
		"DisabledAfterwards": {reason: "it was off before the manager has looked",
			before: enabled, during: enabled, after: off, same: true},
		"AnyTenant": {reason: "the operator says so", before: off, during: off, after: off, anyTenant: true, same: true, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			for claimant, want := range map[string]bool{"same": tc.same, "other": tc.other} {
				d := newDisks(t, 1, 2)
				manager := d.start(d.client)
				if tc.anyTenant {
					d.allowAnyTenant(manager)
				}
				running := func() *process { return manager }
				first := d.ask(d.tenant, "first")
				d.until("installed", running, func() bool { return d.get(first).Status.Phase == v1alpha1.MachineProvisioned })
				d.cleaning("server-00", tc.before)
				if err := d.client.Delete(t.Context(), d.get(first)); err != nil {
					t.Fatal(err)
				}
				d.until("deprovisioning", running, func() bool {
					return d.hosts()[0].Status.Provisioning.State == bmov1alpha1.StateDeprovisioning
				})
				if tc.during != tc.before {
					d.cleaning("server-00", tc.during)
				}
				d.playMetal3()
				// The manager is away until all is over, and sees only how it ends.
				if tc.after != tc.during {
					d.cleaning("server-00", tc.after)
				}
				d.until("released", running, func() bool { return d.get(first) == nil })
				namespace := map[string]string{"same": d.tenant, "other": d.others[0]}[claimant]
				next := d.ask(namespace, "next")
				for range 6 {
					manager.round()
					d.playMetal3()
				}
				machine := d.get(next)
				if got := machine.Status.Phase == v1alpha1.MachineProvisioned; got != want {
					t.Errorf("%s: the %s tenant gets the server: %v, want %v (%s)", tc.reason, claimant, got, want,
						condition(machine, v1alpha1.ConditionReady).Message)
				}
				if message := condition(machine, v1alpha1.ConditionReady).Message; !want && !strings.Contains(message, "1 not cleaned") {
					t.Errorf("%s: the message does not say that a server was not cleaned: %s", tc.reason, message)
				}
			}
		})
	}
}

// TestUncleanedByUpgrade: a server that an older manager has installed has no record of its tenant, and gets it when it is released.
func TestUncleanedByUpgrade(t *testing.T) {
	d := newDisks(t, 1, 2)
	manager := d.start(d.client)
	running := func() *process { return manager }
	first := d.ask(d.tenant, "first")
	d.until("installed", running, func() bool { return d.get(first).Status.Phase == v1alpha1.MachineProvisioned })
	d.annotateHost("server-00", v1alpha1.LastTenantAnnotationKey, "")
	d.cleaning("server-00", bmov1alpha1.CleaningModeDisabled)
	if err := d.client.Delete(t.Context(), d.get(first)); err != nil {
		t.Fatal(err)
	}
	d.until("released", running, func() bool { return d.get(first) == nil })
	if got := d.hosts()[0].Annotations; got[v1alpha1.LastTenantAnnotationKey] != d.tenant || len(got) != 1 {
		t.Errorf("the server has annotations %v, want the tenant that it had last and nothing else", slices.Collect(maps.Keys(got)))
	}
	if !manager.reported("only Machines of namespace " + d.tenant + " get it again") {
		t.Error("no event says that the server was not cleaned")
	}
}

// TestReleasedBeforeItWasInstalled: nothing of the tenant is on a server that was never installed for it.
func TestReleasedBeforeItWasInstalled(t *testing.T) {
	d := newDisks(t, 1, 2)
	manager := d.start(d.client)
	running := func() *process { return manager }
	first := d.machine("first", nil) // without user data, so it waits
	d.until("claimed", running, func() bool { return d.get(first).Status.Phase == v1alpha1.MachineClaimed })
	if err := d.client.Delete(t.Context(), d.get(first)); err != nil {
		t.Fatal(err)
	}
	d.until("released", running, func() bool { return d.get(first) == nil })
	next := d.ask(d.others[0], "next")
	d.until("installed for another", running, func() bool { return d.get(next).Status.Phase == v1alpha1.MachineProvisioned })
}

// allowAnyTenant says for the NodeProvider of the fixture that any tenant may have what was not cleaned.
func (d *disks) allowAnyTenant(p *process) {
	d.t.Helper()
	provider := &v1alpha1.NodeProvider{}
	if err := d.client.Get(d.t.Context(), client.ObjectKey{Name: "provider-" + d.metal3}, provider); err != nil {
		d.t.Fatal(err)
	}
	provider.Spec.Metal3.UncleanedServers = v1alpha1.UncleanedServersAnyTenant
	if err := d.client.Update(d.t.Context(), provider); err != nil {
		d.t.Fatal(err)
	}
	profile := d.profile()
	profile.AnyTenant = true
	p.inventory.SetType(profile)
}

// TestEditedWhileCleaned: others edit a host while Metal3 cleans it. The next tenant gets it if no edit matters, and if each was seen.
func TestEditedWhileCleaned(t *testing.T) {
	describe := func(host *bmov1alpha1.BareMetalHost) { host.Spec.Description += "+" }
	mode := func(mode bmov1alpha1.AutomatedCleaningMode) func(*bmov1alpha1.BareMetalHost) {
		return func(host *bmov1alpha1.BareMetalHost) { host.Spec.AutomatedCleaningMode = mode }
	}
	for name, tc := range map[string]struct {
		reason string
		// edits before the manager looks, each time until the server is released, as often as times.
		edits []func(*bmov1alpha1.BareMetalHost)
		times int
		want  bool
	}{
		"Nobody": {reason: "Metal3 has cleaned it", want: true},
		"Online": {reason: "GitOps puts back what Metal3's examples have", times: 100, want: true,
			edits: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) { host.Spec.Online = true }}},
		"Description": {reason: "it says nothing to Metal3", edits: []func(*bmov1alpha1.BareMetalHost){describe}, times: 1, want: true},
		"Often":       {reason: "each edit was seen", edits: []func(*bmov1alpha1.BareMetalHost){describe}, times: 3, want: true},
		"Unseen": {reason: "an edit between may have disabled the cleaning", times: 1,
			edits: []func(*bmov1alpha1.BareMetalHost){describe, describe}},
		"Toggled": {reason: "that is what unseen edits can be", times: 1,
			edits: []func(*bmov1alpha1.BareMetalHost){mode(bmov1alpha1.CleaningModeDisabled), mode(bmov1alpha1.CleaningModeMetadata)}},
		"Disabled": {reason: "Metal3 erases nothing", times: 1,
			edits: []func(*bmov1alpha1.BareMetalHost){mode(bmov1alpha1.CleaningModeDisabled)}},
		"BMC": {reason: "it may be another server that is cleaned", times: 1,
			edits: []func(*bmov1alpha1.BareMetalHost){func(host *bmov1alpha1.BareMetalHost) { host.Spec.BMC.Address += "1" }}},
		"Image": {reason: "Metal3 may install it", times: 1, edits: []func(*bmov1alpha1.BareMetalHost){
			func(host *bmov1alpha1.BareMetalHost) {
				host.Spec.Image = &bmov1alpha1.Image{URL: "http://images.example.com/other"}
			}}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisks(t, 1, 2)
			manager := d.start(d.client)
			releasing, times := false, 0
			running := func() *process {
				if host := &d.hosts()[0]; releasing && host.Spec.Image == nil && host.Spec.ConsumerRef != nil && times < tc.times {
					times++
					for _, edit := range tc.edits {
						if edit(host); d.client.Update(t.Context(), host) != nil {
							t.Fatal("the host cannot be edited")
						}
					}
				}
				return manager
			}
			key := d.ask(d.tenant, "m")
			d.until("installed", running, func() bool { return d.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			if err := d.client.Delete(t.Context(), d.get(key)); err != nil {
				t.Fatal(err)
			}
			releasing = true
			d.until("released", running, func() bool { return d.get(key) == nil })
			last := d.hosts()[0].Annotations[v1alpha1.LastTenantAnnotationKey]
			other := d.ask(d.others[0], "other")
			for range 6 {
				manager.round()
				d.playMetal3()
			}
			if got := d.get(other).Status.HostRef != nil; got != tc.want || (last == "") != tc.want {
				t.Errorf("%s: another tenant gets the server: %v, last tenant %q; want %v: %s", tc.reason, got, last, tc.want,
					condition(d.get(other), v1alpha1.ConditionReady).Message)
			}
		})
	}
}
