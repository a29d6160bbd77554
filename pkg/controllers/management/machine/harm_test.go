// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// allowed is how many servers each tenant of a history may have.
const allowed = 2

// history is what happens to servers that are healthy, but for one in some histories: whatever is wrong has another cause.
type history struct {
	slowFixture
	random     *rand.Rand
	connection *faults.Connection
	manager    *process
	// silent are the namespaces of tenants whose provider does not work, and down is true while Metal3 does nothing.
	silent map[string]bool
	down   bool
	// elapsed is the time that has passed, whatever the clock was set to.
	elapsed time.Duration
	// edited are the hosts that somebody has edited since the manager looked last, and moved the Machines whose servers were registered
	// anew, by the names that these have now.
	edited map[string]bool
	moved  map[string]types.UID
	// broken is the server on which no node comes up before it is repaired, and failed is true once it was given up for that. It may be
	// quarantined, and those that a tenant has called unhealthy.
	broken           string
	repaired, failed bool
	complained       map[string]bool
	// wasFree are the servers that were free before the last look.
	wasFree map[string]bool
	// reboots are those that core waits for, by Machine.
	awaited map[types.NamespacedName]awaitedReboot
	// orphaned are the hosts that were paused when their Machines were taken away, as when a management cluster is moved.
	orphaned map[string]bool
	log      []string
}

// awaitedReboot is a reboot that was asked for: when, and how many the server has had before.
type awaitedReboot struct {
	host   string
	asked  time.Duration
	before int
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{slowFixture: newSlowFixture(t, 5, nil), random: rand.New(rand.NewPCG(seed, 56)), silent: map[string]bool{},
		edited: map[string]bool{}, moved: map[string]types.UID{}, complained: map[string]bool{},
		awaited: map[types.NamespacedName]awaitedReboot{}, orphaned: map[string]bool{}}
	h.hangs = false
	h.others = []string{h.api.Namespace(t)}
	another := &v1alpha1.TenantCluster{ObjectMeta: metaIn(h.others[0], "tenant")}
	another.Spec.APIServerEndpoint = "tenant.example.com:6443"
	h.create(another)
	for _, namespace := range h.tenants() {
		update(h.fixture, &v1alpha1.TenantCluster{ObjectMeta: metaIn(namespace, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
			tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To[int64](allowed)}
		})
	}
	if h.random.IntN(3) == 0 {
		h.broken = "server-00" // the first by name
		if h.random.IntN(2) == 0 {
			h.fillQuarantine()
		}
	}
	h.restart(false)
	return h
}

// fillQuarantine has a tenant have complained of a server, so that no other is quarantined on the word of any.
func (h *history) fillQuarantine() {
	h.t.Helper()
	const name = "server-03"
	h.complained[name] = true
	h.annotateHost(name, v1alpha1.QuarantinedAnnotationKey, inventory.Quarantine{Reason: v1alpha1.ReasonNodeUnhealthy,
		Since: h.time.Now().Add(-25 * time.Hour), Machine: types.NamespacedName{Namespace: h.tenants()[0], Name: "before"},
		Suspect: true}.String())
}

// restart starts the manager, whose connection or cache may have a fault, or which may die after some of its writes.
func (h *history) restart(faulty bool) {
	h.connection = &faults.Connection{}
	cache := &faults.StaleReads{}
	if faulty {
		if h.random.IntN(3) == 0 {
			cache.At = h.random.IntN(60)
		}
		h.connection = &faults.Connection{Kind: faults.AtWrites[h.random.IntN(len(faults.AtWrites))], At: h.random.IntN(8)}
		h.note("the manager is started: %s at write %d, stale read %d", h.connection.Kind, h.connection.At, cache.At)
	}
	h.processes = nil // the one before has ended
	h.manager = h.startWith(h.connection.Client(cache.Client(h.api.Client)), h.connection.Client(h.api.Client))
	h.manager.random = h.random
	h.manager.deadlines.beat(h.t.Context())
}

func (h *history) tenants() []string { return append([]string{h.tenant}, h.others...) }

// note adds a line to what is shown when a rule is broken.
func (h *history) note(format string, arguments ...any) {
	h.log = append(h.log, h.time.Now().Format("15:04 ")+fmt.Sprintf(format, arguments...))
}

// look is one round of a manager that lives.
func (h *history) look() {
	h.t.Helper()
	if h.connection.Dead() {
		h.note("the manager starts")
		h.restart(false)
	}
	before, free := h.machines(), h.free()
	wasFree := h.wasFree
	h.wasFree = free
	h.manager.round()
	h.connection.PassTime()
	if !h.connection.Dead() {
		h.forgetEdits()
	}
	if !h.failed {
		return
	}
	after := h.free()
	for _, machine := range before {
		now, wanted := h.get(client.ObjectKeyFromObject(&machine)), machine.Annotations[v1alpha1.ChosenHostAnnotationKey]
		if now == nil || wanted != "" || now.Status.HostRef == nil || now.Status.HostRef.Name != h.broken {
			continue
		}
		for name := range after {
			if wasFree[name] && free[name] && after[name] {
				h.fail("Machine %s gets server %s, which has just failed, and %s is free", machine.Name, h.broken, name)
			}
		}
	}
}

// forgetEdits forgets the edits that the manager has seen. It does not look at each Machine in each round.
func (h *history) forgetEdits() {
	h.t.Helper()
	for _, host := range h.hosts() {
		noted, _, waits := strings.Cut(host.Annotations[v1alpha1.CleaningAnnotationKey], "/")
		if !waits || noted == strconv.FormatInt(host.Generation, 10) {
			delete(h.edited, host.Name)
		}
	}
}

// free are the servers that any tenant may have.
func (h *history) free() map[string]bool {
	if !h.failed {
		return nil
	}
	free := map[string]bool{}
	for _, host := range h.hosts() {
		eligibility := inventory.EligibilityOf(&host)
		free[host.Name] = eligibility.Claimable && eligibility.LastTenant == "" && host.Name != h.broken && !h.complained[host.Name]
	}
	return free
}

// works has the servers do what they do within minutes: Metal3 goes on, and what has booted joins. Providers make joins, have core wait for
// reboots, and replace what was given up.
func (h *history) works() {
	h.t.Helper()
	byName := map[string]bmov1alpha1.BareMetalHost{}
	for _, host := range h.hosts() {
		byName[host.Name] = host
		if _, asked := host.Annotations[bmov1alpha1.RebootAnnotationPrefix]; asked && !h.down && hosts.WhyIgnored(&host) == "" &&
			h.gaveUpReboot(&host) {
			h.complained[host.Name] = true // it is rebooted after core has waited for it, and before the manager has seen that
		}
	}
	if !h.down {
		h.playMetal3()
		for _, host := range h.hosts() {
			byName[host.Name] = host
		}
	}
	for _, machine := range h.machines() {
		key := client.ObjectKeyFromObject(&machine)
		if h.silent[machine.Namespace] || !machine.DeletionTimestamp.IsZero() {
			continue
		}
		h.awaitsReboot(&machine)
		if machine.Status.HostRef != nil && condition(&machine, v1alpha1.ConditionGivenUp).Status == metav1.ConditionTrue {
			h.note("%s was given up on %s, and another is asked for", machine.Name, machine.Status.HostRef.Name)
			h.delete(&machine)
			h.ask(machine.Namespace, machine.Name+"-again")
			continue
		}
		if machine.ReportedNode().Name != "" {
			continue
		}
		h.joinOf(&machine)
		if machine.Status.HostRef == nil || (machine.Status.HostRef.Name == h.broken && !h.repaired) {
			continue
		}
		host := byName[machine.Status.HostRef.Name]
		if consumer := host.Spec.ConsumerRef; consumer != nil && consumer.Name == machine.Name && consumer.Namespace == machine.Namespace &&
			host.Status.Provisioning.State == bmov1alpha1.StateProvisioned && host.Spec.Image != nil { // Ironic has switched it on
			h.note("%s joins on %s", machine.Name, host.Name)
			h.edit(key, func(machine *v1alpha1.Machine) {
				machine.ReportNode(func(node *v1alpha1.MachineNode) { node.Name = machine.Name })
			})
		}
	}
}

// joinOf has the provider write the join of a Machine again, if somebody has deleted it.
func (h *history) joinOf(machine *v1alpha1.Machine) {
	h.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metaIn(machine.Namespace, machine.Spec.Bootstrap.DataSecretName),
		Data: map[string][]byte{v1alpha1.UserDataSecretKey: []byte("#cloud-config")}}
	if err := h.client.Create(h.t.Context(), secret); err != nil && !apierrors.IsAlreadyExists(err) {
		h.t.Fatal(err)
	}
}

// reboots has core ask for a reboot of a server, which is healthy all the same.
func (h *history) asksReboot(machine *v1alpha1.Machine) {
	h.t.Helper()
	host := machine.Status.HostRef
	if machine.Status.Phase != v1alpha1.MachineJoined || !machine.DeletionTimestamp.IsZero() || host == nil {
		return
	}
	h.note("%s is to be rebooted on %s", machine.Name, host.Name)
	key := client.ObjectKeyFromObject(machine)
	h.awaited[key] = awaitedReboot{host.Name, h.elapsed, len(h.fixture.reboots[host.Name])}
	h.edit(key, func(machine *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, v1alpha1.RebootAnnotationKey, v1alpha1.RebootHard)
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, v1alpha1.RebootOperationAnnotationKey, fmt.Sprint(h.elapsed))
	})
}

// awaitsReboot has core wait half an hour for a reboot. Then it replaces the node, and the provider says why if the manager has taken the
// request.
func (h *history) awaitsReboot(machine *v1alpha1.Machine) {
	h.t.Helper()
	key := client.ObjectKeyFromObject(machine)
	reboot, awaits := h.awaited[key]
	switch {
	case !awaits:
	case len(h.fixture.reboots[reboot.host]) > reboot.before:
		delete(h.awaited, key)
	case h.elapsed-reboot.asked > 30*time.Minute:
		delete(h.awaited, key)
		_, requested := machine.Annotations[v1alpha1.RebootAnnotationKey]
		h.note("%s is replaced: %s was not rebooted; Metal3 was asked: %v", machine.Name, reboot.host, !requested)
		if !requested {
			h.edit(key, func(machine *v1alpha1.Machine) {
				machine.ReportNode(func(node *v1alpha1.MachineNode) {
					node.Unhealthy = &v1alpha1.UnhealthyNode{Condition: rebooting, Status: corev1.ConditionTrue, Since: metav1.Now()}
				})
			})
		}
		h.delete(machine)
	}
}

// gaveUpReboot is whether core has given up waiting for the reboot of a server.
func (h *history) gaveUpReboot(host *bmov1alpha1.BareMetalHost) bool {
	consumer := host.Spec.ConsumerRef
	if consumer == nil {
		return false
	}
	machine := h.get(types.NamespacedName{Namespace: consumer.Namespace, Name: consumer.Name})
	return machine != nil && machine.ReportedNode().Unhealthy != nil
}

func (h *history) delete(machine *v1alpha1.Machine) {
	h.t.Helper()
	if err := h.client.Delete(h.t.Context(), machine); client.IgnoreNotFound(err) != nil {
		h.t.Fatal(err)
	}
}

func (h *history) ask(namespace, name string) { (&disks{fixture: h.fixture}).ask(namespace, name) }

// lasts has time pass in which everything works that is not down.
func (h *history) lasts(d time.Duration) { h.lastsUntil(d, func() bool { return false }) }

// lastsUntil has time pass until something is so. Nothing happens to nodes that run, so there are fewer looks then.
func (h *history) lastsUntil(d time.Duration, is func() bool) {
	h.t.Helper()
	for end := h.elapsed + d; h.elapsed < end && !is(); {
		step := time.Duration(5+5*h.random.IntN(2)) * time.Minute
		if len(h.awaited) == 0 && !slices.ContainsFunc(h.machines(), func(machine v1alpha1.Machine) bool {
			return machine.Status.Phase != v1alpha1.MachineJoined || !machine.DeletionTimestamp.IsZero()
		}) {
			step = 20 * time.Minute
		}
		h.elapsed += step
		h.pass(step)
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
	servers := h.hosts()
	host := &servers[h.random.IntN(len(servers))]
	waits := host.Spec.Image != nil && host.Status.Provisioning.State == bmov1alpha1.StateAvailable
	if h.edited[host.Name] || waits || hosts.WhyIgnored(host) != "" {
		// If the manager sees two edits as one, the first edit may have disabled the cleaning: the manager leaves a paused host alone, and
		// does not look at each edit. An edit before Metal3 begins may have changed the image, so that Metal3 has installed and removed
		// another image.
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
		h.moved[moved.Name], h.complained[moved.Name] = owner.UID, h.complained[host.Name]
		return
	}
}

// pauses has somebody pause a host or detach it, or end that.
func (h *history) pauses() {
	h.t.Helper()
	servers := h.hosts()
	host := &servers[h.random.IntN(len(servers))]
	if hosts.WhyIgnored(host) != "" {
		h.note("%s is resumed", host.Name)
		h.resume(host)
		return
	}
	key := []string{bmov1alpha1.PausedAnnotation, bmov1alpha1.DetachedAnnotation}[h.random.IntN(2)]
	h.note("%s has the annotation %s", host.Name, key)
	h.annotateHost(host.Name, key, "maintenance")
}

func (h *history) resume(host *bmov1alpha1.BareMetalHost) {
	h.t.Helper()
	before := host.DeepCopy()
	delete(host.Annotations, bmov1alpha1.PausedAnnotation)
	delete(host.Annotations, bmov1alpha1.DetachedAnnotation)
	if err := h.client.Patch(h.t.Context(), host, client.MergeFrom(before)); err != nil {
		h.t.Fatal(err)
	}
	delete(h.orphaned, host.Name)
}

// takesAway pauses the server of a node and takes its Machine away, as when a management cluster is moved.
func (h *history) takesAway(machine *v1alpha1.Machine) {
	h.t.Helper()
	if machine.Status.Phase != v1alpha1.MachineJoined || !machine.DeletionTimestamp.IsZero() || !h.exists(machine.Status.HostRef) {
		return
	}
	h.note("%s is paused, and %s taken away", machine.Status.HostRef.Name, machine.Name)
	h.annotateHost(machine.Status.HostRef.Name, bmov1alpha1.PausedAnnotation, "move")
	h.orphaned[machine.Status.HostRef.Name] = true
	h.edit(client.ObjectKeyFromObject(machine), func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
	h.delete(machine)
}

func (h *history) exists(reference *v1alpha1.HostReference) bool {
	return reference != nil && slices.ContainsFunc(h.hosts(), func(host bmov1alpha1.BareMetalHost) bool { return host.Name == reference.Name })
}

// complains has a tenant call a node unhealthy and give it back.
func (h *history) complains(machine *v1alpha1.Machine) {
	h.t.Helper()
	if machine.Status.Phase != v1alpha1.MachineJoined || !machine.DeletionTimestamp.IsZero() || !h.exists(machine.Status.HostRef) {
		return
	}
	h.note("%s is unhealthy, says its tenant, on %s", machine.Name, machine.Status.HostRef.Name)
	h.complained[machine.Status.HostRef.Name] = true
	h.edit(client.ObjectKeyFromObject(machine), func(machine *v1alpha1.Machine) { machine.ReportNode(reportFault) })
	h.delete(machine)
}

// looksAt has an operator find that a server is well which nobody has.
func (h *history) looksAt(host *bmov1alpha1.BareMetalHost) {
	h.t.Helper()
	marked := host.Annotations[v1alpha1.QuarantinedAnnotationKey] != "" || host.Annotations[v1alpha1.FaultAnnotationKey] != ""
	if host.Spec.ConsumerRef != nil || !marked {
		return
	}
	h.note("an operator has looked at %s", host.Name)
	before := host.DeepCopy()
	delete(host.Annotations, v1alpha1.QuarantinedAnnotationKey)
	delete(host.Annotations, v1alpha1.FaultAnnotationKey)
	if err := h.client.Patch(h.t.Context(), host, client.MergeFrom(before)); err != nil {
		h.t.Fatal(err)
	}
	delete(h.complained, host.Name)
	h.failed = h.failed && host.Name != h.broken
}

// changes has somebody edit what they may edit of a Machine, or delete its join before it has a node.
func (h *history) changes(machine *v1alpha1.Machine) {
	h.t.Helper()
	if h.random.IntN(2) == 0 && machine.ReportedNode().Name == "" {
		h.note("the join of %s is deleted", machine.Name)
		secret := &corev1.Secret{ObjectMeta: metaIn(machine.Namespace, machine.Spec.Bootstrap.DataSecretName)}
		if err := h.client.Delete(h.t.Context(), secret); client.IgnoreNotFound(err) != nil {
			h.t.Fatal(err)
		}
		return
	}
	h.note("somebody edits %s", machine.Name)
	h.edit(client.ObjectKeyFromObject(machine), func(machine *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, "note", fmt.Sprint(h.random.IntN(100)))
		metav1.SetMetaDataLabel(&machine.ObjectMeta, "team", fmt.Sprint("team-", h.random.IntN(100)))
	})
}

func (h *history) fail(format string, arguments ...any) {
	h.t.Helper()
	h.t.Fatalf("%s, after:\n%s", fmt.Sprintf(format, arguments...), strings.Join(h.log[max(0, len(h.log)-80):], "\n"))
}

// check fails if a healthy server was taken from somebody.
func (h *history) check() {
	h.t.Helper()
	living := map[string]v1alpha1.Machine{}
	for _, machine := range h.machines() {
		given := condition(&machine, v1alpha1.ConditionGivenUp)
		blamed := h.broken != "" && machine.Status.HostRef != nil && machine.Status.HostRef.Name == h.broken
		if given.Status == metav1.ConditionTrue {
			h.failed = h.failed || blamed && !h.repaired
		}
		if given.Status == metav1.ConditionTrue && !blamed {
			h.fail("Machine %s is given up: %s", machine.Name, given.Message)
		}
		if machine.DeletionTimestamp.IsZero() {
			living[machine.Namespace+"/"+machine.Name] = machine
		}
	}
	for _, host := range h.hosts() {
		for _, key := range []string{v1alpha1.QuarantinedAnnotationKey, v1alpha1.FaultAnnotationKey} {
			if why := host.Annotations[key]; why != "" && host.Name != h.broken && !h.complained[host.Name] {
				h.fail("server %s has the annotation %s: %s", host.Name, key, why)
			}
		}
		if h.orphaned[host.Name] && (host.Spec.Image == nil || !host.Spec.Online || host.Spec.ConsumerRef == nil) {
			h.fail("server %s is paused and its Machine was taken away, and it is wiped or switched off", host.Name)
		}
		if consumer := host.Spec.ConsumerRef; consumer != nil {
			machine, lives := living[consumer.Namespace+"/"+consumer.Name]
			runs := lives && (machine.Status.Phase == v1alpha1.MachineJoined || h.moved[host.Name] == machine.UID)
			if runs && (host.Spec.Image == nil || !host.Spec.Online) {
				h.fail("server %s runs the node of Machine %s, and is wiped or switched off", host.Name, machine.Name)
			}
		}
	}
}

// TestNoHistoryDoesHarm plays random histories of servers that are healthy, but for one at most: the manager is stopped, its connection
// fails, its cache is behind, its clock is set, Metal3 and the tenants' providers are down for hours, others edit objects, pause hosts and
// register them anew, and call healthy nodes unhealthy. No server is released that somebody has, none is quarantined that nobody
// complains of, no node is wiped. Once everything works again, each Machine becomes a node, and each server comes back for all tenants.
func TestNoHistoryDoesHarm(t *testing.T) {
	var joined, histories atomic.Int64
	t.Run("Seed", func(t *testing.T) {
		for seed := range system.Histories(t, 20) {
			histories.Add(1)
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				joined.Add(int64(newHistory(t, seed).play()))
			})
		}
	})
	if joined.Load() < histories.Load()/2 {
		t.Errorf("%d Machines have joined in %d histories: they prove nothing", joined.Load(), histories.Load())
	}
}

// play returns how many Machines were nodes at the end.
func (h *history) play() int {
	h.t.Helper()
	for step := range 40 + h.random.IntN(40) {
		h.happens(step)
		h.check()
	}
	return h.ends()
}

// happens is one thing that happens.
func (h *history) happens(step int) {
	h.t.Helper()
	switch h.random.IntN(16) {
	case 0, 1:
		h.asks(fmt.Sprintf("m-%d", step))
	case 2:
		if machine := h.anyMachine(); machine != nil {
			h.note("%s is deleted", machine.Name)
			h.delete(machine)
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
	case 10:
		h.pauses()
	case 11:
		if machine := h.anyMachine(); machine != nil {
			h.changes(machine)
		}
	case 12:
		h.elsewhere()
	default:
		h.elapsed += time.Minute
		h.works()
		h.look()
	}
}

// elsewhere is what happens more seldom.
func (h *history) elsewhere() {
	h.t.Helper()
	machine := h.anyMachine()
	if machine == nil {
		return
	}
	switch h.random.IntN(4) {
	case 0:
		h.asksReboot(machine)
	case 1:
		h.complains(machine)
	case 2:
		h.takesAway(machine)
	default:
		for _, host := range h.hosts() {
			h.looksAt(&host)
		}
	}
}

// anyMachine is nil if there is none.
func (h *history) anyMachine() *v1alpha1.Machine {
	machines := h.machines()
	if len(machines) == 0 {
		return nil
	}
	return &machines[h.random.IntN(len(machines))]
}

// asks has a tenant ask for a server within its quota.
func (h *history) asks(name string) {
	h.t.Helper()
	namespace, has := h.tenants()[h.random.IntN(2)], 0
	for _, machine := range h.machines() {
		if machine.Namespace == namespace {
			has++
		}
	}
	if has < allowed {
		h.note("%s is asked for", name)
		h.ask(namespace, name)
	}
}

// installing is how many Machines wait for Metal3 to install their servers, as the manager knows, and will go on to.
func (h *history) installing() (count int) {
	servers := h.hosts()
	for _, machine := range h.machines() {
		if machine.Status.Phase == v1alpha1.MachineProvisioning && machine.DeletionTimestamp.IsZero() &&
			slices.ContainsFunc(servers, func(host bmov1alpha1.BareMetalHost) bool {
				return host.Name == machine.Status.HostRef.Name && host.Status.Provisioning.State != bmov1alpha1.StateProvisioned &&
					hosts.WhyIgnored(&host) == ""
			}) {
			count++
		}
	}
	return count
}

// ends has everything work again, and everybody give their servers back. It returns how many Machines were nodes before.
func (h *history) ends() (joined int) {
	h.t.Helper()
	h.note("everything works again")
	h.repaired, h.failed = true, false
	for _, namespace := range h.tenants() {
		h.says(namespace, false)
	}
	for _, host := range h.hosts() {
		h.resume(&host)
	}
	if h.connection.Kind != "" {
		h.restart(false) // an outage is over
	}
	// waits returns a Machine that has no node, for another reason than those, and why.
	waits := func(reasons ...string) (*v1alpha1.Machine, metav1.Condition) {
		for _, machine := range h.machines() {
			ready := condition(&machine, v1alpha1.ConditionReady)
			settled := machine.Status.Phase == v1alpha1.MachineJoined && machine.DeletionTimestamp.IsZero()
			if !settled && !slices.Contains(reasons, ready.Reason) {
				return &machine, ready
			}
		}
		return nil, metav1.Condition{}
	}
	settle := func(reasons ...string) {
		h.t.Helper()
		reasons = append(reasons, v1alpha1.ReasonHostLost)
		h.lastsUntil(2*time.Hour, func() bool { machine, _ := waits(reasons...); return machine == nil })
		if machine, ready := waits(reasons...); machine != nil {
			h.fail("Machine %s is %s and has not become a node: %s", machine.Name, machine.Status.Phase, ready.Message)
		}
	}
	settle(v1alpha1.ReasonNoCapacity) // nobody looks at suspects
	for _, host := range h.hosts() {
		h.looksAt(&host)
	}
	settle()
	for _, machine := range h.machines() {
		if machine.Status.Phase == v1alpha1.MachineJoined {
			joined++
		}
		h.delete(&machine)
	}
	h.lastsUntil(2*time.Hour, func() bool { return len(h.machines()) == 0 && h.unreturned() == "" })
	if why := h.unreturned(); why != "" {
		h.fail("%s", why)
	}
	return joined
}

// unreturned says which server is not back for all tenants, and is empty if each is.
func (h *history) unreturned() string {
	for _, host := range h.hosts() {
		eligibility := inventory.EligibilityOf(&host)
		if !eligibility.Claimable || eligibility.LastTenant != "" {
			return fmt.Sprintf("server %s is not back for all tenants: it %s, annotations %v", host.Name, eligibility.Message, host.Annotations)
		}
	}
	return ""
}
