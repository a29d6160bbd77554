// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// looks are what a server is seen to be, one after the other.
type looks []string

func (s *looks) see(host *bmov1alpha1.BareMetalHost) {
	parts := []string{string(host.Status.Provisioning.State)}
	for text, holds := range map[string]bool{
		"2 off": !host.Spec.Online && !host.Status.PoweredOn, "3 image": host.Spec.Image != nil, "4 network": host.Annotations[preReturn] != "",
		"5 soiled": host.Annotations[v1alpha1.LastTenantAnnotationKey] != "", "6 claimed": host.Spec.ConsumerRef != nil,
	} {
		if holds {
			parts = append(parts, text)
		}
	}
	slices.Sort(parts[1:])
	for i, part := range parts[1:] {
		parts[i+1] = part[2:]
	}
	if stage := strings.Join(parts, " "); len(*s) == 0 || (*s)[len(*s)-1] != stage {
		*s = append(*s, stage)
	}
}

// TestLeavesNetworkBeforeCleaning: another machine in the network of a tenant can answer Ironic in the place of the agent that erases the
// disks. So a server is off and moved before that, whatever it is when its Machine is deleted, or it does not count as clean.
func TestLeavesNetworkBeforeCleaning(t *testing.T) {
	const installed = "provisioned image network soiled claimed"
	inOrder := looks{
		installed, "provisioned off image network soiled claimed", "provisioned off image soiled claimed", "provisioned off soiled claimed",
		"deprovisioning off soiled claimed", "available off soiled claimed", "available off",
	}
	inside := func(first string) looks { // it is cleaned in the network
		return looks{first, "deprovisioning off network soiled claimed", "available off network soiled claimed",
			"available off soiled claimed", "available off soiled"}
	}
	state := func(state bmov1alpha1.ProvisioningState) func(*bmov1alpha1.BareMetalHost) {
		return func(host *bmov1alpha1.BareMetalHost) {
			host.Status.Provisioning.State, host.Status.Provisioning.Image = state, bmov1alpha1.Image{}
			host.Status.PoweredOn = false
		}
	}
	failed := func(host *bmov1alpha1.BareMetalHost) {
		host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "the BMC does not answer"
	}
	healed := func(host *bmov1alpha1.BareMetalHost) { host.Status.ErrorType, host.Status.ErrorMessage = "", "" }
	annotated := func(key string) (set, unset func(*bmov1alpha1.BareMetalHost)) {
		return func(host *bmov1alpha1.BareMetalHost) { metav1.SetMetaDataAnnotation(&host.ObjectMeta, key, "") },
			func(host *bmov1alpha1.BareMetalHost) { delete(host.Annotations, key) }
	}
	pause, unpause := annotated(bmov1alpha1.PausedAnnotation)
	detach, attach := annotated(bmov1alpha1.DetachedAnnotation)
	for name, tc := range map[string]struct {
		reason string
		// early deletes the Machine before anything is installed.
		early bool
		// spec and status of the server when its Machine is deleted, and of its Machine.
		spec, status func(*bmov1alpha1.BareMetalHost)
		machine      func(*v1alpha1.Machine)
		// says is what the Machine says as long as nothing changes; then these changes are made.
		says                   string
		specAfter, statusAfter func(*bmov1alpha1.BareMetalHost)
		// byForce deletes the Machine with its finalizer.
		byForce bool
		want    looks
	}{
		"Running":        {reason: "the usual case", want: inOrder},
		"DeletedByForce": {reason: "the hook is on the server, and the sweep releases it", byForce: true, want: inOrder},
		"SwitchedOff": {reason: "the tenant has switched it off, and Metal3 has seen it on before",
			machine: func(machine *v1alpha1.Machine) { machine.Spec.Power = &v1alpha1.MachinePower{State: v1alpha1.PowerOff} },
			want:    inOrder[1:]},
		"JustInstalled": {reason: "that it is off was true before the installation: it runs", status: func(host *bmov1alpha1.BareMetalHost) {
			host.Status.PoweredOn = false
		}, says: "is being switched off", want: inOrder},
		"Installing": {reason: "Metal3 switches off no server that it installs", status: state(bmov1alpha1.StateProvisioning),
			says: "is provisioning: it is switched off, moved and cleaned once that has ended",
			want: append(looks{"provisioning image network soiled claimed"}, inOrder...)},
		"InstallationFailed": {reason: "Metal3 cleans it by itself, in the network", status: func(host *bmov1alpha1.BareMetalHost) {
			state(bmov1alpha1.StateProvisioning)(host)
			host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.ProvisioningError, "wrong checksum"
		}, says: "provisioning error", statusAfter: healed,
			want: slices.Insert(inside("provisioning image network soiled claimed"), 1, "provisioning off network soiled claimed")},
		"DeprovisionedByMetal3": {reason: "the same, a moment later", status: state(bmov1alpha1.StateDeprovisioning),
			want: inside("deprovisioning image network soiled claimed")},
		"InstalledAgain": {reason: "it was cleaned in the network after a first try", status: state(bmov1alpha1.StateAvailable),
			want: looks{"available image network soiled claimed", "available off network soiled claimed", "available off soiled claimed",
				"available off soiled"}},
		"NotBegun": {reason: "nothing was written, and nothing is erased", status: func(host *bmov1alpha1.BareMetalHost) {
			state(bmov1alpha1.StateAvailable)(host)
			host.Status.OperationHistory = bmov1alpha1.OperationHistory{}
		}, want: looks{"available image network soiled claimed", "available off network soiled claimed", "available off soiled claimed",
			"available off"}},
		"NotInstalled": {reason: "it has no image yet", early: true,
			want: looks{"available off network claimed", "available off claimed", "available off"}},
		"BMCUnreachable": {reason: "it may run: it is not moved", status: failed, says: "power management error", statusAfter: healed,
			want: inOrder},
		"Paused": {reason: "Metal3 switches nothing off", spec: pause, says: "Metal3 does nothing on it", specAfter: unpause, want: inOrder},
		"Detached": {reason: "Metal3 switches nothing off", spec: detach, says: "Metal3 does nothing on it", specAfter: attach,
			want: inOrder},
		"ExternallyProvisioned": {reason: "an operator says that Metal3 installs and cleans nothing there",
			spec:   func(host *bmov1alpha1.BareMetalHost) { host.Spec.ExternallyProvisioned = true },
			status: state(bmov1alpha1.StateExternallyProvisioned), says: "spec.externallyProvisioned",
			specAfter:   func(host *bmov1alpha1.BareMetalHost) { host.Spec.ExternallyProvisioned = false },
			statusAfter: state(bmov1alpha1.StateAvailable),
			want: looks{"externally provisioned image network soiled claimed", "externally provisioned off network soiled claimed",
				"available off network soiled claimed", "available off soiled claimed", "available off soiled"}},
		"MayNotBeOff": {reason: "a server that runs is not moved out of its tenant's network",
			spec: func(host *bmov1alpha1.BareMetalHost) { host.Spec.DisablePowerOff = true },
			want: looks{installed, "provisioned network soiled claimed", "deprovisioning network soiled claimed",
				"available network soiled claimed", "available soiled claimed", "available soiled"}},
		"ImageTakenOff": {reason: "a person did, and Metal3 has cleaned it in the network",
			spec: func(host *bmov1alpha1.BareMetalHost) { host.Spec.Image = nil },
			want: inside("provisioned network soiled claimed")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			w.network()
			w.userData("user-data")
			key := w.machine("m", func(machine *v1alpha1.Machine) {
				if !tc.early {
					machine.Spec.Bootstrap.DataSecretName = "user-data"
				}
			})
			manager := w.start(w.client)
			running := func() *process { return manager }
			w.until("held", running, func() bool { return waitsForHook(w.get(key)) })
			w.takeHook(key, v1alpha1.PreProvisionHookPrefix)
			if !tc.early {
				w.until("installed", running, func() bool {
					return w.get(key).Status.Phase == v1alpha1.MachineProvisioned && w.hosts()[0].Status.PoweredOn
				})
			}
			if tc.machine != nil {
				w.edit(key, tc.machine)
				w.rounds(manager)
			}
			change := func(spec, status func(*bmov1alpha1.BareMetalHost)) {
				if spec != nil {
					w.edithost("server-00", spec)
				}
				if status != nil {
					w.host("server-00", status)
				}
			}
			change(tc.spec, tc.status)
			if tc.byForce {
				w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
			}
			var seen looks
			seen.see(&w.hosts()[0])
			if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
				t.Fatal(err)
			}
			if tc.says != "" {
				for range 3 {
					manager.round()
				}
				if got := condition(w.get(key), v1alpha1.ConditionReleased).Message; !strings.Contains(got, tc.says) {
					t.Errorf("the Machine says %q, want %q", got, tc.says)
				}
				if waitsForHook(w.get(key)) {
					t.Error("whoever moves servers is told to move one that may run")
				}
				seen.see(&w.hosts()[0])
				change(tc.specAfter, tc.statusAfter)
			}
			for range maxRounds {
				manager.round()
				w.checkClaims()
				seen.see(&w.hosts()[0])
				if machine, host := w.get(key), w.hosts()[0]; machine != nil && waitsForHook(machine) || tc.byForce && inventory.IsOff(&host) {
					w.annotateHost(host.Name, preReturn, "")
					seen.see(&w.hosts()[0])
				}
				if w.hosts()[0].Spec.ConsumerRef == nil {
					break
				}
				w.playMetal3()
				seen.see(&w.hosts()[0])
			}
			if diff := cmp.Diff(tc.want, seen); diff != "" {
				t.Errorf("%s: the server (-want +got):\n%s", tc.reason, diff)
			}
			if got := w.hosts()[0].Annotations[v1alpha1.ReleasingAnnotationKey]; got != "" {
				t.Errorf("the server goes back to the pool with %s", v1alpha1.ReleasingAnnotationKey)
			}
		})
	}
}

// TestNothingSwitchesItOnAgain: a Machine that is deleted by force and made anew with the identity of its claim has lost the server that
// is being released: it would run what the tenant has installed in the parking lot.
func TestNothingSwitchesItOnAgain(t *testing.T) {
	for name, moved := range map[string]bool{"InTheNetwork": false, "Moved": true} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			w.network()
			w.userData("user-data")
			key := w.machine("m", func(machine *v1alpha1.Machine) { machine.Spec.Bootstrap.DataSecretName = "user-data" })
			manager := w.start(w.client)
			running := func() *process { return manager }
			w.until("held", running, func() bool { return waitsForHook(w.get(key)) })
			w.takeHook(key, v1alpha1.PreProvisionHookPrefix)
			w.until("installed", running, func() bool { return w.hosts()[0].Status.PoweredOn })
			uid := w.get(key).UID
			w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
			if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
				t.Fatal(err)
			}
			w.until("off", running, func() bool { return inventory.IsOff(&w.hosts()[0]) })
			if moved {
				w.annotateHost("server-00", preReturn, "")
			}
			w.machine("m", func(machine *v1alpha1.Machine) {
				machine.Annotations = map[string]string{v1alpha1.ClaimUIDAnnotationKey: string(uid), v1alpha1.RebootAnnotationKey: ""}
				machine.Spec.Bootstrap.DataSecretName = "user-data"
				machine.Spec.Power = &v1alpha1.MachinePower{State: v1alpha1.PowerOn}
			})
			w.rounds(manager)
			if host := w.hosts()[0]; !inventory.IsOff(&host) {
				t.Errorf("online %v, powered %v, image %v, state %s", host.Spec.Online, host.Status.PoweredOn, host.Spec.Image,
					host.Status.Provisioning.State)
			}
			ready := condition(w.get(key), v1alpha1.ConditionReady)
			if ready.Reason != v1alpha1.ReasonHostLost || !strings.Contains(ready.Message, "being released") {
				t.Errorf("Ready is %+v", ready)
			}
			if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
				t.Fatal(err)
			}
			w.until("gone", running, func() bool {
				if machine := w.get(key); machine != nil && waitsForHook(machine) {
					w.takeHook(key, v1alpha1.PreReturnHookPrefix)
				}
				return w.get(key) == nil
			})
			w.checkNothingLeft()
		})
	}
}

// TestOffBeforeItIsSeenOn: what Metal3 says of the power of a server that it has just installed is older than the installation. A tenant
// that switches it off at that moment would have it taken for off.
func TestOffBeforeItIsSeenOn(t *testing.T) {
	machine, host := provisionedPair()
	machine.Spec.Power = &v1alpha1.MachinePower{State: v1alpha1.PowerOff}
	host.Annotations = map[string]string{preReturn: "vlan:100"}
	host.Spec.Online = true
	if powered, differs := powerToSet(machine, host); !powered || differs {
		t.Errorf("not seen on: online %v, differs %v", powered, differs)
	}
	host.Status.PoweredOn = true
	if powered, differs := powerToSet(machine, host); powered || !differs {
		t.Errorf("seen on: online %v, differs %v", powered, differs)
	}
}

// checkCleaned checks what must hold at any moment: a server whose disks were erased in the network of its tenant does not count as
// clean, and one that runs what its tenant has installed is in that network.
func (w *fixture) checkCleaned() {
	w.t.Helper()
	for _, host := range w.hosts() {
		inside := host.Annotations[preReturn] != ""
		if host.Status.Provisioning.State == bmov1alpha1.StateDeprovisioning {
			w.cleanedInside[host.Name] = inside
		}
		_, soiled := host.Annotations[v1alpha1.LastTenantAnnotationKey]
		if host.Spec.ConsumerRef == nil && w.cleanedInside[host.Name] && !soiled {
			w.t.Fatalf("host %s was cleaned in the network of its tenant, and counts as clean", host.Name)
		}
		if inside && host.Spec.ConsumerRef != nil {
			w.networked[consumerIn(&host)] = true
		}
		if w.networked[consumerIn(&host)] && !inside && host.Spec.Image != nil && (host.Spec.Online || host.Status.PoweredOn) {
			w.t.Fatalf("host %s runs what its tenant has installed, outside of the tenant's network", host.Name)
		}
	}
}

// consumerIn is the UID of the Machine that a host is claimed by, which is none otherwise.
func consumerIn(host *bmov1alpha1.BareMetalHost) types.UID {
	consumer, _ := hosts.ConsumerOf(host)
	return consumer.UID
}

// TestNetworkConditionOfARelease: a hook that a Machine has waited for before is no hook of its release.
func TestNetworkConditionOfARelease(t *testing.T) {
	machine, host := provisionedPair()
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonWaitingForHook}}
	next := nextStatus(machine, observation{phase: v1alpha1.MachineReleasing, reason: v1alpha1.ReasonDeprovisioning, host: host}, metav1.Now())
	machine.Status = next
	if waitsForHook(machine) {
		t.Error("whoever moves servers is told to move one that is being switched off")
	}
}
