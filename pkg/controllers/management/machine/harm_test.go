// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// history is what happens to servers that are all healthy: whatever is wrong has another cause.
type history struct {
	slowFixture
	random     *rand.Rand
	connection *faults.Connection
	manager    *process
	// silent are the namespaces of tenants whose provider does not work, and down is true while Metal3 does nothing.
	silent map[string]bool
	down   bool
	// edited are the hosts that somebody has edited since the manager looked last, and moved the Machines whose servers were registered
	// anew, by the names that these have now.
	edited map[string]bool
	moved  map[string]types.UID
	log    []string
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{slowFixture: newSlowFixture(t, 5, nil), random: rand.New(rand.NewPCG(seed, 56)), silent: map[string]bool{},
		edited: map[string]bool{}, moved: map[string]types.UID{}}
	h.hangs = false
	h.others = []string{h.api.Namespace(t)}
	another := &v1alpha1.TenantCluster{ObjectMeta: metaIn(h.others[0], "tenant")}
	another.Spec.APIServerEndpoint = "tenant.example.com:6443"
	h.create(another)
	h.restart(false)
	return h
}

// restart starts the manager, which may die after some of its writes.
func (h *history) restart(dies bool) {
	h.connection = &faults.Connection{}
	if dies {
		h.connection = &faults.Connection{Kind: faults.Crash, At: h.random.IntN(8)}
	}
	h.processes = nil // the one before has ended
	h.manager = h.start(h.connection.Client(h.api.Client))
}

func (h *history) tenants() []string { return append([]string{h.tenant}, h.others...) }

// note adds a line to what is shown when a rule is broken.
func (h *history) note(format string, arguments ...any) {
	h.log = append(h.log, h.time.Now().Format("15:04 ")+fmt.Sprintf(format, arguments...))
}

// look is one round of a manager that lives.
func (h *history) look() {
	if h.connection.Dead() {
		h.note("the manager starts")
		h.restart(false)
	}
	h.manager.round()
	if !h.connection.Dead() {
		clear(h.edited)
	}
}

// works has the servers do what they do within minutes: Metal3 goes on, and what has booted joins.
func (h *history) works() {
	if !h.down {
		h.playMetal3()
	}
	byName := map[string]bmov1alpha1.BareMetalHost{}
	for _, host := range h.hosts() {
		byName[host.Name] = host
	}
	for _, machine := range h.machines() {
		if h.silent[machine.Namespace] || machine.Status.HostRef == nil || machine.ReportedNode().Name != "" {
			continue
		}
		host := byName[machine.Status.HostRef.Name]
		if consumer := host.Spec.ConsumerRef; consumer != nil && consumer.Name == machine.Name && consumer.Namespace == machine.Namespace &&
			host.Status.Provisioning.State == bmov1alpha1.StateProvisioned && host.Spec.Image != nil { // Ironic has switched it on
			h.note("%s joins on %s", machine.Name, host.Name)
			h.edit(client.ObjectKeyFromObject(&machine), func(machine *v1alpha1.Machine) {
				machine.ReportNode(func(node *v1alpha1.MachineNode) { node.Name = machine.Name })
			})
		}
	}
}

// lasts has time pass in which everything works that is not down.
func (h *history) lasts(d time.Duration) {
	for range int(d / (5 * time.Minute)) {
		h.pass(5 * time.Minute)
		h.works()
		h.look()
		h.check()
	}
}

func (h *history) says(namespace string, silent bool) {
	h.t.Helper()
	h.silent[namespace] = silent
	cluster := &v1alpha1.TenantCluster{}
	if err := h.client.Get(h.t.Context(), types.NamespacedName{Namespace: namespace, Name: "tenant"}, cluster); err != nil {
		h.t.Fatal(err)
	}
	cluster.Status.Conditions = nil
	if silent {
		cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
			Reason: v1alpha1.ReasonProviderSilent, LastTransitionTime: metav1.NewTime(h.time.Now())}}
	}
	if err := h.client.Status().Update(h.t.Context(), cluster); err != nil {
		h.t.Fatal(err)
	}
}

// edits changes what others may change on a host while we have it.
func (h *history) edits() {
	h.t.Helper()
	hosts := h.hosts()
	host := &hosts[h.random.IntN(len(hosts))]
	waits := host.Spec.Image != nil && host.Status.Provisioning.State == bmov1alpha1.StateAvailable
	if h.edited[host.Name] || waits {
		// If the manager sees two edits as one, the first edit may have disabled the cleaning. An edit before Metal3 begins may have changed
		// the image, so that Metal3 has installed and removed another image.
		return
	}
	h.edited[host.Name] = true
	h.note("somebody edits %s, which is %s", host.Name, host.Status.Provisioning.State)
	switch h.random.IntN(3) {
	case 0:
		host.Spec.Online = true
	case 1:
		host.Spec.Description = fmt.Sprint("rack ", h.random.IntN(100))
	default:
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, "touched", fmt.Sprint(h.random.IntN(100)))
	}
	if err := h.client.Update(h.t.Context(), host); err != nil {
		h.t.Fatal(err)
	}
}

// moves registers the server of a node anew, under another name and with its status, as a person does.
func (h *history) moves() {
	h.t.Helper()
	for _, host := range h.hosts() {
		if host.Spec.ConsumerRef == nil || host.Spec.Image == nil || host.Status.Provisioning.State != bmov1alpha1.StateProvisioned {
			continue
		}
		owner := h.get(types.NamespacedName{Namespace: host.Spec.ConsumerRef.Namespace, Name: host.Spec.ConsumerRef.Name})
		if owner == nil || owner.Status.Phase != v1alpha1.MachineJoined || !owner.DeletionTimestamp.IsZero() {
			continue
		}
		h.note("%s is registered anew as %s-moved", host.Name, host.Name)
		bare := host.DeepCopy()
		bare.Finalizers = nil
		if err := h.client.Patch(h.t.Context(), bare, client.MergeFrom(&host)); err != nil {
			h.t.Fatal(err)
		}
		if err := h.client.Delete(h.t.Context(), bare); client.IgnoreNotFound(err) != nil {
			h.t.Fatal(err)
		}
		moved := host.DeepCopy()
		moved.Name, moved.UID, moved.ResourceVersion = host.Name+"-moved", "", ""
		h.create(moved)
		moved.Status = host.Status
		if err := h.client.Status().Update(h.t.Context(), moved); err != nil {
			h.t.Fatal(err)
		}
		h.moved[moved.Name] = owner.UID
		return
	}
}

// check fails if a healthy server was taken from somebody.
func (h *history) check() {
	h.t.Helper()
	fail := func(format string, arguments ...any) {
		h.t.Helper()
		h.t.Fatalf("%s, after:\n%s", fmt.Sprintf(format, arguments...), strings.Join(h.log[max(0, len(h.log)-60):], "\n"))
	}
	living := map[string]v1alpha1.Machine{}
	for _, machine := range h.machines() {
		if given := condition(&machine, v1alpha1.ConditionGivenUp); given.Status == metav1.ConditionTrue {
			fail("Machine %s is given up: %s", machine.Name, given.Message)
		}
		if machine.DeletionTimestamp.IsZero() {
			living[machine.Namespace+"/"+machine.Name] = machine
		}
	}
	for _, host := range h.hosts() {
		for _, key := range []string{v1alpha1.QuarantinedAnnotationKey, v1alpha1.FaultAnnotationKey} {
			if why := host.Annotations[key]; why != "" {
				fail("server %s has the annotation %s: %s", host.Name, key, why)
			}
		}
		if consumer := host.Spec.ConsumerRef; consumer != nil {
			machine, lives := living[consumer.Namespace+"/"+consumer.Name]
			runs := lives && (machine.Status.Phase == v1alpha1.MachineJoined || h.moved[host.Name] == machine.UID)
			if runs && (host.Spec.Image == nil || !host.Spec.Online) {
				fail("server %s runs the node of Machine %s, and is wiped or switched off", host.Name, machine.Name)
			}
		}
	}
}

// TestNoHistoryDoesHarm plays random histories of healthy servers: the manager is stopped and its clock is set, Metal3 and the tenants'
// providers are down for hours, others edit hosts and register them anew. No server is released that somebody has, none is quarantined, no
// node is wiped. Once everything works again, each Machine becomes a node, and each server comes back for all tenants.
func TestNoHistoryDoesHarm(t *testing.T) {
	const histories = 10
	joined := 0
	for seed := range uint64(histories) {
		h := newHistory(t, seed)
		for step := range 40 + h.random.IntN(40) {
			switch h.random.IntN(12) {
			case 0, 1:
				h.asks(fmt.Sprintf("m-%d", step))
			case 2:
				if machines := h.machines(); len(machines) > 0 {
					machine := machines[h.random.IntN(len(machines))]
					h.note("%s is deleted", machine.Name)
					if err := h.client.Delete(t.Context(), &machine); client.IgnoreNotFound(err) != nil {
						t.Fatal(err)
					}
				}
			case 3:
				h.note("the manager is restarted")
				h.restart(h.random.IntN(2) == 0)
			case 4:
				jump := time.Duration(h.random.IntN(121)-60) * time.Minute
				h.note("the clock is set by %v", jump)
				h.step(jump)
			case 5:
				namespace := h.tenants()[h.random.IntN(2)]
				h.note("the provider of %s works: %v", namespace, h.silent[namespace])
				h.says(namespace, !h.silent[namespace])
			case 6:
				h.edits()
			case 7:
				if h.random.IntN(4) == 0 {
					h.moves()
				}
			case 8:
				if h.random.IntN(2) == 0 { // several are installed then
					for n := range 4 {
						h.asks(fmt.Sprintf("m-%d-%d", step, n))
					}
					h.look()
					h.look()
				}
				d := 20 * time.Minute    // a server that hangs for longer than the deadline, alone or with another, may be broken
				if h.installing() >= 3 { // as many as Metal3 is to blame for, and no server
					d = time.Duration(1+h.random.IntN(4)) * time.Hour
				}
				h.note("Metal3 does nothing for %v", d)
				h.down = true
				h.lasts(d)
				h.down = false
				h.lasts(10 * time.Minute)
			case 9:
				d := time.Duration(1+h.random.IntN(4)) * time.Hour
				h.note("%v pass", d)
				h.lasts(d)
			default:
				h.works()
				h.look()
			}
			h.check()
		}
		joined += h.ends()
	}
	if joined < histories/2 {
		t.Errorf("%d Machines have joined in %d histories: they prove nothing", joined, histories)
	}
}

// asks has a tenant ask for a server, if there are enough for all that ask.
func (h *history) asks(name string) {
	h.t.Helper()
	if len(h.machines()) < 4 {
		h.note("%s is asked for", name)
		(&disks{fixture: h.fixture}).ask(h.tenants()[h.random.IntN(2)], name)
	}
}

// installing is how many servers Metal3 installs.
func (h *history) installing() (count int) {
	for _, machine := range h.machines() {
		if machine.Status.Phase == v1alpha1.MachineProvisioning {
			count++
		}
	}
	return count
}

// ends has everything work again, and everybody give their servers back. It returns how many Machines were nodes before.
func (h *history) ends() (joined int) {
	h.t.Helper()
	h.note("everything works again")
	for _, namespace := range h.tenants() {
		h.says(namespace, false)
	}
	h.lasts(time.Hour)
	for _, machine := range h.machines() {
		lost := condition(&machine, v1alpha1.ConditionReady).Reason == v1alpha1.ReasonHostLost
		switch {
		case machine.Status.Phase == v1alpha1.MachineJoined:
			joined++
		case machine.DeletionTimestamp.IsZero() && !lost:
			h.t.Fatalf("Machine %s is %s and has not become a node: %s, after:\n%s", machine.Name, machine.Status.Phase,
				condition(&machine, v1alpha1.ConditionReady).Message, strings.Join(h.log, "\n"))
		}
		if err := h.client.Delete(h.t.Context(), &machine); client.IgnoreNotFound(err) != nil {
			h.t.Fatal(err)
		}
	}
	h.lasts(time.Hour)
	for _, host := range h.hosts() {
		eligibility := inventory.EligibilityOf(&host)
		if !eligibility.Claimable || eligibility.LastTenant != "" {
			h.t.Fatalf("server %s is not back for all tenants: it %s, annotations %v, after:\n%s", host.Name, eligibility.Message, host.Annotations,
				strings.Join(slices.Clone(h.log), "\n"))
		}
	}
	return joined
}
