// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
)

func TestPower(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Power = &v1alpha1.MachinePower{State: v1alpha1.PowerOff}
	})
	manager := w.start(w.client)
	running := func() *process { return manager }
	is := func(reason string, power v1alpha1.PowerState) func() bool {
		return func() bool {
			machine := w.get(key)
			return condition(machine, v1alpha1.ConditionReady).Reason == reason && machine.Status.Power != nil && machine.Status.Power.State == power
		}
	}
	w.until("installed and then off", running, is(v1alpha1.ReasonPoweredOff, v1alpha1.PowerOff))
	if machine := w.get(key); machine.Status.Phase != v1alpha1.MachineProvisioned || w.hosts()[0].Spec.Image == nil {
		t.Errorf("phase %s, image %v: switching off is not taking the image off", machine.Status.Phase, w.hosts()[0].Spec.Image)
	}
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Power.State = "" }) // On, as in the reference
	w.until("on", running, is(v1alpha1.ReasonStandAlone, v1alpha1.PowerOn))
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Spec.Power = nil })
	host := w.hosts()[0]
	host.Spec.Online = false
	if err := w.client.Update(t.Context(), &host); err != nil {
		t.Fatal(err)
	}
	w.until("off by another client", running, is(v1alpha1.ReasonStandAlone, v1alpha1.PowerOff))
	if w.hosts()[0].Spec.Online {
		t.Error("a Machine that says nothing about power has switched its server on")
	}
}

func TestReboot(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, value string
		want          []string
	}{
		"Soft":      {"soft unless told otherwise", "", []string{`{"mode":"soft","force":false}`}},
		"Hard":      {"at once", v1alpha1.RebootHard, []string{`{"mode":"hard","force":false}`}},
		"Unknown":   {"what is not understood is not done", "now", nil},
		"Reference": {"the key of the reference", v1alpha1.ReferenceKey(v1alpha1.RebootAnnotationKey), []string{`{"mode":"soft","force":false}`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			key := w.machine("m", standAlone)
			manager := w.start(w.client)
			running := func() *process { return manager }
			w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			request := map[string]string{v1alpha1.RebootAnnotationKey: tc.value}
			if tc.value == v1alpha1.ReferenceKey(v1alpha1.RebootAnnotationKey) {
				request = map[string]string{tc.value: ""}
			}
			w.edit(key, func(machine *v1alpha1.Machine) { machine.Annotations = maps.Clone(request) })
			w.until("served", running, func() bool {
				for annotation := range request {
					if _, requested := w.get(key).Annotations[annotation]; requested {
						return false
					}
				}
				return true
			})
			for range 3 {
				manager.round()
				w.playMetal3()
			}
			if diff := cmp.Diff(tc.want, w.reboots["server-00"]); diff != "" {
				t.Errorf("%s: reboots (-want +got):\n%s", tc.reason, diff)
			}
			if told := w.get(key).Status.Power.LastReboot != nil; told != (tc.want != nil) {
				t.Errorf("%s: status.power is %+v", tc.reason, w.get(key).Status.Power)
			}
			if refused := manager.reported("neither hard nor soft"); refused != (tc.want == nil) {
				t.Errorf("%s: an event that it is refused: %v", tc.reason, refused)
			}
			if _, marked := w.hosts()[0].Annotations[v1alpha1.RebootedAnnotationKey]; marked {
				t.Error("the mark is left on the host")
			}
		})
	}
}

// TestRebootOfAnotherOperation: a request that comes before the one before it is forgotten is served, too, and each of them once.
func TestRebootOfAnotherOperation(t *testing.T) {
	before := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason, mark, operation string
		want                    int
	}{
		"Same":        {"the manager died before it took the request off", hosts.RebootMark("a", before), "a", 0},
		"Other":       {"the server has booted since, and is sick again", hosts.RebootMark("a", before), "b", 1},
		"AfterPerson": {"a person's reboot is none for Karpenter, which waits for a later boot", hosts.RebootMark("", before), "b", 1},
		"Person":      {"a person's request is the same until it is off", hosts.RebootMark("", before), "", 0},
		"Foreign":     {"what another client has written is no mark of this operation, and ends", "yes", "b", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			key := w.machine("m", standAlone)
			manager := w.start(w.client)
			running := func() *process { return manager }
			w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			w.edithost("server-00", func(host *bmov1alpha1.BareMetalHost) {
				metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.RebootedAnnotationKey, tc.mark)
			})
			w.edit(key, func(machine *v1alpha1.Machine) {
				machine.Annotations = map[string]string{v1alpha1.RebootAnnotationKey: v1alpha1.RebootHard}
				if tc.operation != "" {
					machine.Annotations[v1alpha1.RebootOperationAnnotationKey] = tc.operation
				}
			})
			w.until("served", running, func() bool {
				_, requested := w.get(key).Annotations[v1alpha1.RebootAnnotationKey]
				return !requested && !w.marked()
			})
			w.playMetal3()
			if got := len(w.reboots["server-00"]); got != tc.want {
				t.Errorf("%s: the server was rebooted %d times, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// TestServedRebootInOldCache: a manager that has just started reads a request from its cache that was served before.
func TestServedRebootInOldCache(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", standAlone)
	manager := w.start(w.client)
	running := func() *process { return manager }
	w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	w.edit(key, func(machine *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, v1alpha1.RebootAnnotationKey, v1alpha1.RebootHard)
	})
	requested := w.get(key)
	w.until("served", running, func() bool {
		_, requested := w.get(key).Annotations[v1alpha1.RebootAnnotationKey]
		return !requested && !w.marked()
	})
	w.playMetal3()
	w.startWith(behind(w.api.Client, requested), w.client).round()
	w.playMetal3()
	if got := len(w.reboots["server-00"]); got != 1 {
		t.Errorf("the server was rebooted %d times, want once", got)
	}
}

// TestRebootWaits: Metal3 does nothing on a paused server. The request waits, and if core gives up waiting, the server is not to blame.
func TestRebootWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// pauseAfter pauses the host after Metal3 was asked, not before.
		pauseAfter, resumes bool
		reboots             int
		quarantined         bool
	}{
		"Resumed":     {reason: "the pause is over", resumes: true, reboots: 1, quarantined: true},
		"Paused":      {reason: "an operator has paused it", reboots: 0},
		"PausedAfter": {reason: "Metal3 was asked, and did not see it", pauseAfter: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			key := w.machine("m", standAlone)
			manager := w.start(w.client)
			running := func() *process { return manager }
			w.until("provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			pause := func() { w.annotateHost("server-00", bmov1alpha1.PausedAnnotation, "maintenance") }
			if !tc.pauseAfter {
				pause()
			}
			w.edit(key, func(machine *v1alpha1.Machine) {
				machine.Annotations = map[string]string{v1alpha1.RebootAnnotationKey: v1alpha1.RebootHard}
			})
			manager.round()
			if tc.pauseAfter {
				pause()
			}
			for range 3 {
				manager.round()
				w.playMetal3()
			}
			resume := func() { w.annotateHost("server-00", bmov1alpha1.PausedAnnotation, "") }
			if tc.resumes {
				resume()
			}
			for range 3 {
				manager.round()
				w.playMetal3()
			}
			if got := len(w.reboots["server-00"]); got != tc.reboots {
				t.Errorf("%s: %d reboots, want %d", tc.reason, got, tc.reboots)
			}
			w.edit(key, func(machine *v1alpha1.Machine) {
				machine.ReportNode(func(node *v1alpha1.MachineNode) {
					node.Unhealthy = &v1alpha1.UnhealthyNode{Condition: "Rebooting", Status: "True", Since: metav1.Now()}
				})
			})
			if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
				t.Fatal(err)
			}
			manager.round()
			host := w.hosts()[0]
			if _, quarantined := host.Annotations[v1alpha1.QuarantinedAnnotationKey]; quarantined != tc.quarantined {
				t.Errorf("%s: quarantined %v, want %v", tc.reason, quarantined, tc.quarantined)
			}
		})
	}
}
