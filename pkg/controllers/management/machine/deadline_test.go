// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// slowFixture is a fixture in which Metal3 never gets done, and whose time the test makes pass.
type slowFixture struct {
	*fixture
	time *clocktesting.FakePassiveClock
}

func newSlowFixture(t *testing.T, servers int, change func(*v1alpha1.NodeType)) slowFixture {
	t.Helper()
	w := slowFixture{fixture: newFixture(t, servers), time: clocktesting.NewFakePassiveClock(midnight.Time)}
	w.clock, w.hangs = w.time, true
	if change != nil {
		nodeType := &v1alpha1.NodeType{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: w.nodeType}, nodeType); err != nil {
			t.Fatal(err)
		}
		change(nodeType)
		if err := w.client.Update(t.Context(), nodeType); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// pass has time pass while the processes run.
func (w slowFixture) pass(d time.Duration) {
	for end := w.time.Now().Add(d); w.time.Now().Before(end); {
		w.step(min(choiceDelay, end.Sub(w.time.Now())))
		for _, p := range w.processes {
			p.deadlines.beat(w.t.Context())
		}
	}
}

// step sets the clock, as NTP does, or as it is after the manager or its machine was stopped.
func (w slowFixture) step(d time.Duration) { w.time.SetTime(w.time.Now().Add(d)) }

// invited makes a Machine that has its user data.
func (w slowFixture) invited(name string) types.NamespacedName {
	w.t.Helper()
	w.userData(name + "-user-data")
	return w.machine(name, func(m *v1alpha1.Machine) { m.Spec.Bootstrap.DataSecretName = name + "-user-data" })
}

// writing takes a Machine to where Metal3 writes its image.
func (w slowFixture) writing(key types.NamespacedName, running func() *process) {
	w.t.Helper()
	w.until("writing", running, func() bool {
		progress := w.get(key).Status.Progress
		return progress != nil && progress.Stage == v1alpha1.StageWriting
	})
}

func (w slowFixture) givenUp(key types.NamespacedName) bool {
	return condition(w.get(key), v1alpha1.ConditionGivenUp).Status == metav1.ConditionTrue
}

func (w slowFixture) hostOf(key types.NamespacedName) bmov1alpha1.BareMetalHost {
	w.t.Helper()
	for _, host := range w.hosts() {
		if host.Name == w.get(key).Status.HostRef.Name {
			return host
		}
	}
	w.t.Fatal("the host is gone")
	return bmov1alpha1.BareMetalHost{}
}

// TestClockSteps: the clock of the manager's machine is set, or the manager is stopped. No Machine is given up for time in which nobody
// looked, each is after its deadline once somebody does.
func TestClockSteps(t *testing.T) {
	const deadline = time.Hour // DefaultProvisioningDeadline
	for name, tc := range map[string]struct {
		reason string
		steps  []time.Duration
		// another has another manager run after a step, which has not seen it.
		another bool
	}{
		"forward":          {"NTP after a boot, SIGSTOP, or a virtual machine that was suspended", []time.Duration{2 * time.Hour}, false},
		"forward and back": {"a wrong answer of NTP", []time.Duration{2 * time.Hour, -2 * time.Hour}, false},
		"back":             {"the clock was ahead", []time.Duration{-2 * time.Hour}, false},
		"back and forward": {"a wrong answer of NTP", []time.Duration{-2 * time.Hour, 2 * time.Hour}, false},
		"twice":            {"it is stopped again before it has run for long", []time.Duration{2 * time.Hour, 50 * time.Minute}, false},
		"elsewhere":        {"the clock of the machine of the next leader is ahead", []time.Duration{42 * time.Minute}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSlowFixture(t, 3, nil)
			manager := w.start(w.client)
			running := func() *process { return manager }
			var keys []types.NamespacedName
			for n := range 3 {
				keys = append(keys, w.invited(fmt.Sprintf("m-%d", n)))
			}
			for _, key := range keys {
				w.writing(key, running)
			}
			look := func() {
				w.metal3Works(manager)
				manager.round()
			}
			ahead := time.Duration(0)
			for _, step := range tc.steps {
				w.pass(5 * time.Minute)
				look()
				w.step(step)
				if tc.another {
					w.processes = nil // the manager before has ended
					manager = w.start(w.client)
				}
				look()
				ahead += step
			}
			w.pass(deadline - time.Minute)
			look()
			for _, key := range keys {
				if w.givenUp(key) {
					t.Errorf("Machine %s is given up: %s; %s", key.Name, condition(w.get(key), v1alpha1.ConditionGivenUp).Message, tc.reason)
				}
			}
			// After a step back, the last progress seems to be in the future for as long.
			w.pass(2*time.Minute + max(0, -ahead))
			look()
			for _, key := range keys {
				if !w.givenUp(key) {
					t.Errorf("Machine %s is not given up after its deadline; %s", key.Name, tc.reason)
				}
			}
		})
	}
}

// TestStampsAhead: a stamp from before the clock was set back is old, although it seems to be recent later on.
func TestStampsAhead(t *testing.T) {
	after := func(minutes time.Duration) time.Time { return midnight.Time.Add(minutes * time.Minute) }
	for name, tc := range map[string]struct {
		reason string
		beats  []time.Time
		want   bool
	}{
		"SetBack":    {"this process has seen the later time", []time.Time{after(45), after(0), after(1)}, true},
		"Restarted":  {"nobody can have noted it after the start", []time.Time{after(0), after(1)}, true},
		"NotSetBack": {"it was noted a while ago", []time.Time{after(46)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &heartbeat{}
			for _, moment := range tc.beats {
				h.beat(moment)
			}
			h.isOld(after(45), after(-30)) // somebody looks at it
			h.beat(after(70))
			if got := h.isOld(after(45), after(40)); got != tc.want {
				t.Errorf("a stamp of 45 minutes is old after 70: %v, want %v; %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestSharedFault: all deadlines pass at once, because of what all servers need. Few Machines are given up for it at once, and time alone
// gives up the rest. One bad server is given up in time, whatever happens to another tenant.
func TestSharedFault(t *testing.T) {
	w := newSlowFixture(t, 41, nil)
	manager := w.start(w.client)
	running := func() *process { return manager }
	var keys []types.NamespacedName
	for n := range 40 {
		keys = append(keys, w.invited(fmt.Sprintf("m-%02d", n)))
	}
	w.others = append(w.others, w.api.Namespace(t))
	other := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.others[0], Name: "tenant"}}
	other.Spec.APIServerEndpoint = "other.example.com:6443"
	w.create(other)
	alone := w.machine("alone", func(m *v1alpha1.Machine) { m.Namespace = other.Namespace })
	for _, key := range keys {
		w.writing(key, running)
	}
	w.until("alone has a server", running, func() bool { return w.get(alone).Status.Progress != nil })
	count := func() (count int) {
		for _, key := range keys {
			if w.givenUp(key) {
				count++
			}
		}
		return count
	}
	w.pass(61 * time.Minute)
	for range 9 {
		w.metal3Works(manager)
		manager.round()
		w.pass(time.Minute)
	}
	if got := count(); got == 0 || got > 8 {
		t.Errorf("%d of 40 Machines are given up within ten minutes, want 8", got)
	}
	if !w.givenUp(alone) {
		t.Error("the server of another tenant is not given up, because of those of the first")
	}
	held := 0
	for _, key := range keys {
		ready := condition(w.get(key), v1alpha1.ConditionReady)
		if ready.Reason == v1alpha1.ReasonTooManyGivenUp {
			held++
			if !strings.Contains(ready.Message, "8 of 40 Machines that were under way were given up within 10m0s") {
				t.Fatalf("the message is %q", ready.Message)
			}
		}
	}
	if held != 32 {
		t.Errorf("%d Machines say that they are given up later, want 32", held)
	}
	for range 10 {
		w.pass(10 * time.Minute)
		w.metal3Works(manager)
		manager.round()
		manager.round()
	}
	if got := count(); got != 40 {
		t.Errorf("%d of 40 Machines are given up in two hours, want all", got)
	}
}

// metal3Works has Metal3 do something with a server that no Machine has.
func (w slowFixture) metal3Works(p *process) {
	host := env.AvailableHost(w.metal3, "inspected", nil)
	p.inventory.SetHost(host)
	changed := host.DeepCopy()
	changed.Status.Provisioning.State = bmov1alpha1.StateInspecting
	p.inventory.SetHost(changed)
}

// TestStandstill: while the tenant's provider or Metal3 is down, no Machine is given up, however long that takes, and each has all of its
// deadline afterwards.
func TestStandstill(t *testing.T) {
	silent := func(w slowFixture, silent bool) {
		tenant := &v1alpha1.TenantCluster{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.tenant, Name: "tenant"}, tenant); err != nil {
			t.Fatal(err)
		}
		tenant.Status.Conditions = nil
		if silent {
			tenant.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown,
				Reason: v1alpha1.ReasonProviderSilent, LastTransitionTime: metav1.NewTime(midnight.Time)}}
		}
		if err := w.client.Status().Update(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		reason        string
		machines      int
		booting       bool
		stands, moves func(slowFixture, *process)
		says          string
	}{
		"ProviderIsSilent": {reason: "nobody reports that a node has registered", machines: 1, booting: true,
			stands: func(w slowFixture, _ *process) { silent(w, true) }, moves: func(w slowFixture, _ *process) { silent(w, false) },
			says: "its deadline stands still: the provider of tenant tenant does not work (ProviderSilent)"},
		"ProviderWorks": {reason: "the server does not boot", machines: 1, booting: true},
		"Metal3IsDown": {reason: "no server is installed", machines: severalStuck, stands: func(slowFixture, *process) {},
			moves: slowFixture.metal3Works, says: "its deadline stands still: 3 servers in namespace"},
		"ClockIsSetBack": {reason: "the stamp of the third is ahead of the clock", machines: severalStuck - 1,
			stands: func(w slowFixture, p *process) {
				w.pass(45 * time.Minute)
				w.writing(w.invited("third"), func() *process { return p })
				w.step(-45 * time.Minute)
			}, moves: slowFixture.metal3Works, says: "its deadline stands still: 3 servers in namespace"},
		"Few":         {reason: "the two servers may be broken", machines: severalStuck - 1},
		"Metal3Works": {reason: "only these servers are not installed", machines: severalStuck, moves: slowFixture.metal3Works},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSlowFixture(t, 5, nil)
			manager := w.start(w.client)
			running := func() *process { return manager }
			var keys []types.NamespacedName
			for n := range tc.machines {
				key := w.invited(fmt.Sprintf("m%d", n))
				w.writing(key, running)
				keys = append(keys, key)
			}
			if w.hangs = !tc.booting; tc.booting {
				w.until("booting", running, func() bool { return w.get(keys[0]).Status.Phase == v1alpha1.MachineProvisioned })
			}
			manager.round()
			if tc.stands != nil {
				tc.stands(w, manager)
			}
			givenUp := func() (count int) {
				for _, key := range keys {
					if w.givenUp(key) {
						count++
					}
				}
				return count
			}
			for range 30 { // five hours, or until a state changes
				w.pass(10 * time.Minute)
				if tc.stands == nil && tc.moves != nil {
					tc.moves(w, manager)
				}
				manager.round()
			}
			if tc.stands == nil {
				if givenUp() != len(keys) {
					t.Errorf("%s: %d of %d are given up", tc.reason, givenUp(), len(keys))
				}
				return
			}
			if message := condition(w.get(keys[0]), v1alpha1.ConditionReady).Message; givenUp() > 0 || !strings.Contains(message, tc.says) {
				t.Fatalf("%s: %d of %d are given up, %s; want none, and %q", tc.reason, givenUp(), len(keys), message, tc.says)
			}
			tc.moves(w, manager)
			manager.round()
			for range 3 {
				w.pass(19 * time.Minute)
				tc.moves(w, manager)
				manager.round()
			}
			if givenUp() > 0 {
				t.Errorf("%s: %d of %d are given up: the time of the outage was counted", tc.reason, givenUp(), len(keys))
			}
			w.pass(4 * time.Minute)
			tc.moves(w, manager)
			manager.round()
			if givenUp() == 0 {
				t.Errorf("%s: the deadline does not count any more", tc.reason)
			}
		})
	}
}

// TestDeadline: a Machine without progress is given up, with its stage, the time and the remedy in the message; its
// server is quarantined, and the Machine stays until it is deleted.
func TestDeadline(t *testing.T) {
	w := newSlowFixture(t, 1, func(nodeType *v1alpha1.NodeType) {
		nodeType.Spec.ProvisioningDeadline = &metav1.Duration{Duration: 90 * time.Minute}
	})
	manager := w.start(w.client)
	running := func() *process { return manager }
	key := w.invited("m")
	w.writing(key, running)
	w.pass(89 * time.Minute)
	manager.round()
	if w.givenUp(key) {
		t.Fatal("given up before its deadline")
	}
	if got, want := condition(w.get(key), v1alpha1.ConditionReady).Message,
		"writing image, step 3 of 5, 89 min: Metal3 is installing http://images.example.com/os.qcow2 on server "; !strings.HasPrefix(got, want) {
		t.Errorf("the message is %q, want it to begin with %q", got, want)
	}
	w.pass(2 * time.Minute)
	manager.round()
	machine := w.get(key)
	givenUp := condition(machine, v1alpha1.ConditionGivenUp)
	if givenUp.Status != metav1.ConditionTrue || givenUp.Reason != v1alpha1.ReasonDeadlineExceeded ||
		machine.Status.Phase != v1alpha1.MachineFailed {
		t.Fatalf("phase %s, condition %+v; want it to be given up", machine.Status.Phase, givenUp)
	}
	for _, part := range []string{"given up after 90 min without progress at writing image, step 3 of 5", "which is provisioning",
		v1alpha1.QuarantinedAnnotationKey} {
		if !strings.Contains(givenUp.Message, part) {
			t.Errorf("the message does not say %q: %s", part, givenUp.Message)
		}
	}
	host := w.hostOf(key)
	quarantine, ours := inventory.QuarantineOf(&host)
	if want := (inventory.Quarantine{Reason: v1alpha1.ReasonDeadlineExceeded, Since: midnight.Add(91 * time.Minute), Machine: key,
		Suspect: true}); !ours || quarantine != want {
		t.Errorf("the server is quarantined: %q, want %q", host.Annotations[v1alpha1.QuarantinedAnnotationKey], want)
	}
	// Nothing that happens afterwards makes it come back, and nothing deletes it.
	w.hangs = false
	for range 3 {
		w.playMetal3()
		manager.round()
	}
	if machine := w.get(key); machine.Status.Phase != v1alpha1.MachineFailed || !w.givenUp(key) || machine.Status.ProviderID == "" {
		t.Errorf("phase %s after the server got done; want Failed, still given up and still with its server", machine.Status.Phase)
	}
}

// TestDeadlineAndJoined: the node of a Machine that was given up registers after all, or had registered while the provider was
// down. The server is in use, so it is not quarantined.
func TestDeadlineAndJoined(t *testing.T) {
	w := newSlowFixture(t, 1, nil)
	manager := w.start(w.client)
	running := func() *process { return manager }
	key := w.invited("m")
	w.writing(key, running)
	w.hangs = false
	w.until("booting", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	w.pass(61 * time.Minute)
	w.until("given up", running, func() bool { return w.givenUp(key) })
	if host := w.hostOf(key); host.Annotations[v1alpha1.QuarantinedAnnotationKey] == "" {
		t.Fatal("the server is not quarantined")
	}
	w.edit(key, func(m *v1alpha1.Machine) { m.Spec.Node = &v1alpha1.MachineNode{Name: "node"} })
	w.until("joined", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineJoined })
	manager.round()
	host, machine := w.hostOf(key), w.get(key)
	if machine.Status.Phase != v1alpha1.MachineJoined || w.givenUp(key) || host.Annotations[v1alpha1.QuarantinedAnnotationKey] != "" ||
		machine.Status.Progress.Stage != v1alpha1.StageJoined {
		t.Errorf("phase %s at %s, given up %v, quarantined %q", machine.Status.Phase, machine.Status.Progress.Stage, w.givenUp(key),
			host.Annotations[v1alpha1.QuarantinedAnnotationKey])
	}
	for _, secret := range w.secrets() {
		if len(secret.Data[v1alpha1.UserDataSecretKey]) > 0 {
			t.Error("the join is still in the user data of a server that has joined")
		}
	}
}

// TestDeadlineSuspended: an operator who pauses a host, or has its error mended, has all the time.
func TestDeadlineSuspended(t *testing.T) {
	for name, tc := range map[string]struct{ set, unset func(*fixture, string) }{
		"Paused": {
			set:   func(w *fixture, host string) { w.annotateHost(host, bmov1alpha1.PausedAnnotation, "maintenance") },
			unset: func(w *fixture, host string) { w.annotateHost(host, bmov1alpha1.PausedAnnotation, "") },
		},
		"ErrorHeld": {
			set: func(w *fixture, host string) {
				w.host(host, func(h *bmov1alpha1.BareMetalHost) {
					h.Status.ErrorType, h.Status.ErrorMessage, h.Status.ErrorCount = bmov1alpha1.ProvisioningError, "no route", 7
				})
			},
			unset: func(w *fixture, host string) {
				w.host(host, func(h *bmov1alpha1.BareMetalHost) { h.Status.ErrorType, h.Status.ErrorMessage = "", "" })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSlowFixture(t, 1, nil)
			manager := w.start(w.client)
			running := func() *process { return manager }
			key := w.invited("m")
			w.writing(key, running)
			host := w.get(key).Status.HostRef.Name
			tc.set(w.fixture, host)
			manager.round()
			w.pass(5 * time.Hour)
			manager.round()
			if w.givenUp(key) || !w.get(key).Status.Progress.Suspended {
				t.Fatalf("given up %v, progress %+v; want it to be suspended", w.givenUp(key), w.get(key).Status.Progress)
			}
			tc.unset(w.fixture, host)
			manager.round()
			w.pass(59 * time.Minute)
			manager.round()
			if w.givenUp(key) {
				t.Fatal("the time of the operator was counted")
			}
			w.pass(2 * time.Minute)
			manager.round()
			if !w.givenUp(key) {
				t.Error("the deadline does not count any more")
			}
		})
	}
}

// TestDeadlineAfterOutage: a manager that was down does not hold against Machines what it has not seen.
func TestDeadlineAfterOutage(t *testing.T) {
	w := newSlowFixture(t, 2, nil)
	manager := w.start(w.client)
	running := func() *process { return manager }
	stuck, moving := w.invited("stuck"), w.invited("moving")
	w.writing(stuck, running)
	w.writing(moving, running)
	w.pass(3 * time.Hour)
	manager = w.start(w.client)
	manager.round()
	w.pass(9 * time.Minute)
	w.host(w.get(moving).Status.HostRef.Name, func(h *bmov1alpha1.BareMetalHost) {
		h.Status.Provisioning.State, h.Status.Provisioning.Image = bmov1alpha1.StateProvisioned, *h.Spec.Image
	})
	manager.round()
	if w.givenUp(stuck) || w.givenUp(moving) {
		t.Fatal("given up before Metal3 had time to move on")
	}
	w.pass(52 * time.Minute)
	manager.round()
	if !w.givenUp(stuck) || w.givenUp(moving) {
		t.Errorf("given up: the one that is stuck %v, the one that moves %v; want the first alone", w.givenUp(stuck), w.givenUp(moving))
	}
}

// TestGivenUpBeforeInstallation: user data that never comes is not the server's fault.
func TestGivenUpBeforeInstallation(t *testing.T) {
	w := newSlowFixture(t, 1, nil)
	manager := w.start(w.client)
	key := w.machine("m", nil)
	manager.round()
	w.pass(61 * time.Minute)
	manager.round()
	if message := condition(w.get(key), v1alpha1.ConditionGivenUp).Message; !w.givenUp(key) ||
		!strings.Contains(message, "at preparing user data, step 2 of 5") {
		t.Errorf("given up %v: %q", w.givenUp(key), message)
	}
	if host := w.hostOf(key); host.Annotations[v1alpha1.QuarantinedAnnotationKey] != "" {
		t.Errorf("the server is quarantined: %s", host.Annotations[v1alpha1.QuarantinedAnnotationKey])
	}
}

// TestWritesWhileWaiting: an hour of nothing new is a write every five minutes, and none once it has arrived.
func TestWritesWhileWaiting(t *testing.T) {
	w := newSlowFixture(t, 1, nil)
	connection := &faults.Connection{}
	manager := w.start(connection.Client(w.api.Client))
	running := func() *process { return manager }
	key := w.invited("m")
	w.writing(key, running)
	count := func(minutes int) int {
		before := len(connection.Writes())
		for range minutes {
			w.pass(time.Minute)
			manager.round()
		}
		return len(connection.Writes()) - before
	}
	if writes := count(55); writes > 11 {
		t.Errorf("%d writes in 55 minutes of writing an image, want at most 11", writes)
	}
	w.hangs = false
	w.edit(key, func(m *v1alpha1.Machine) {
		m.Spec.Node = &v1alpha1.MachineNode{Name: "node"}
	})
	w.until("joined", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineJoined })
	if got := w.get(key).Status.Progress; got.Step != 5 || got.LastProgressTime.Sub(got.StartTime.Time) != 55*time.Minute {
		t.Errorf("progress %+v, want to have joined after 55 minutes", got)
	}
	w.playMetal3()
	manager.round()
	if writes := count(60); writes != 0 {
		t.Errorf("%d writes in an hour of running, want none: %v", writes, connection.Writes()[len(connection.Writes())-writes:])
	}
}

// TestGiveUpFaultsAtEveryWrite: at each write on the way, the server is quarantined before the status shows that the
// Machine is given up, and goes back to the pool as that.
func TestGiveUpFaultsAtEveryWrite(t *testing.T) {
	undisturbed := &faults.Connection{}
	giveUpCycle(t, undisturbed)
	for n, name := range undisturbed.Writes() {
		t.Logf("write %2d: %s", n+1, name)
	}
	for _, kind := range faults.AtWrites {
		t.Run(string(kind), func(t *testing.T) {
			for write := 1; write <= len(undisturbed.Writes()); write++ {
				t.Run(fmt.Sprintf("Write%02d", write), func(t *testing.T) {
					t.Parallel()
					giveUpCycle(t, &faults.Connection{Kind: kind, At: write})
				})
			}
		})
	}
}

// giveUpCycle takes a Machine from its creation until it is given up and its server is released. Time passes with every
// round.
func giveUpCycle(t *testing.T, connection *faults.Connection) {
	t.Helper()
	w := newSlowFixture(t, 1, func(nodeType *v1alpha1.NodeType) {
		nodeType.Spec.ProvisioningDeadline = &metav1.Duration{Duration: 30 * time.Minute}
	})
	manager := w.start(connection.Client(w.api.Client))
	key := w.invited("m")
	running := func() *process {
		if connection.Dead() {
			connection = &faults.Connection{}
			manager = w.start(connection.Client(w.api.Client))
		}
		connection.PassTime()
		w.pass(4 * time.Minute)
		return manager
	}
	w.until("given up", running, func() bool {
		givenUp := w.givenUp(key)
		if host := w.hosts()[0]; givenUp && host.Annotations[v1alpha1.QuarantinedAnnotationKey] == "" {
			t.Fatal("given up, and the server is not quarantined")
		}
		return givenUp
	})
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	w.until("gone", running, func() bool { return w.get(key) == nil })
	host := w.hosts()[0]
	if eligibility := inventory.EligibilityOf(&host); eligibility.Reason != inventory.ReasonQuarantined {
		t.Errorf("the server %s; want it to be quarantined and else well", eligibility.Message)
	}
	w.annotateHost(host.Name, v1alpha1.QuarantinedAnnotationKey, "")
	w.checkNothingLeft()
}
