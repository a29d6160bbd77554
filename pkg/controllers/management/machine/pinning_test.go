// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func pinnedTo(name string) func(*v1alpha1.Machine) {
	return func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Properties = map[string]string{v1alpha1.PropertyServerName: name}
	}
}

// annotateHost changes the annotations of a host the way a person would; an empty value takes one off.
func (w *fixture) annotateHost(name, key, value string) {
	w.t.Helper()
	for _, host := range w.hosts() {
		if host.Name != name {
			continue
		}
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, key, value)
		if value == "" {
			delete(host.Annotations, key)
		}
		if err := w.client.Update(w.t.Context(), &host); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestPinned: a Machine that is pinned gets its server or none, says why, and gets it when it becomes free.
func TestPinned(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, server string
		prevent, allow func(*fixture)
		want           string
		message        string
	}{
		"Missing": {
			reason: "the name may be a typo, or of a server that is still to be racked", server: "late",
			allow:   func(w *fixture) { w.api.CreateHost(w.t, env.AvailableHost(w.metal3, "late", nil)) },
			want:    v1alpha1.ReasonNoCapacity,
			message: "does not exist",
		},
		"Taken": {
			reason: "another Machine has it", server: "server-00",
			prevent: func(w *fixture) {
				other := w.get(w.machine("other", pinnedTo("server-00")))
				w.start(w.client).round()
				if w.get(hosts.OwnerOf(other).NamespacedName).Status.ProviderID == "" {
					w.t.Fatal("the other Machine has not got its server")
				}
			},
			allow: func(w *fixture) {
				for _, machine := range w.machines() {
					if machine.Name == "other" {
						if err := w.client.Delete(w.t.Context(), &machine); err != nil {
							w.t.Fatal(err)
						}
					}
				}
			},
			want:    v1alpha1.ReasonNoCapacity,
			message: "is claimed by a Machine",
		},
		"InError": {
			reason: "an errored host is never claimed", server: "server-00",
			prevent: func(w *fixture) {
				w.host("server-00", func(host *bmov1alpha1.BareMetalHost) {
					host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.PowerManagementError, "no power"
				})
			},
			allow: func(w *fixture) {
				w.host("server-00", func(host *bmov1alpha1.BareMetalHost) { host.Status.ErrorType, host.Status.ErrorMessage = "", "" })
			},
			want:    v1alpha1.ReasonNoCapacity,
			message: "is in error (power management error)", // Metal3's words are for operators
		},
		"TooSmall": {
			reason: "inspection has found less than the type says", server: "server-00",
			prevent: func(w *fixture) {
				w.host("server-00", func(host *bmov1alpha1.BareMetalHost) { host.Status.HardwareDetails.CPU.Count = 4 })
			},
			allow: func(w *fixture) {
				w.host("server-00", func(host *bmov1alpha1.BareMetalHost) { host.Status.HardwareDetails.CPU.Count = 8 })
			},
			want:    v1alpha1.ReasonNoMatchingType,
			message: "is too small for this type (cpu 4 of 8)",
		},
		"Maintenance": {
			reason: "it is in maintenance", server: "server-00",
			prevent: func(w *fixture) { w.annotateHost("server-00", v1alpha1.MaintenanceAnnotationKey, "new fan") },
			allow:   func(w *fixture) { w.annotateHost("server-00", v1alpha1.MaintenanceAnnotationKey, "") },
			want:    v1alpha1.ReasonNoCapacity,
			message: "is in maintenance",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 2) // one more than is wanted, which it must not get
			if tc.prevent != nil {
				tc.prevent(w)
			}
			key := w.machine("m", pinnedTo(tc.server))
			manager := w.start(w.client)
			manager.round()
			machine := w.get(key)
			claimed := condition(machine, v1alpha1.ConditionClaimed)
			if machine.Status.Phase != v1alpha1.MachineFailed || machine.Status.HostRef != nil {
				t.Errorf("%s: phase %s, host %v; want Failed and none", tc.reason, machine.Status.Phase, machine.Status.HostRef)
			}
			if claimed.Reason != tc.want || !strings.Contains(claimed.Message, tc.message) || !strings.Contains(claimed.Message, tc.server) {
				t.Errorf("%s: %s: %q; want %s and %q", tc.reason, claimed.Reason, claimed.Message, tc.want, tc.message)
			}
			tc.allow(w)
			w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
			if got := w.get(key).Status.HostRef.Name; got != tc.server {
				t.Errorf("%s: it has got %s", tc.reason, got)
			}
		})
	}
}

// TestPinnedToWrongType: the server exists and is free, and is of another type.
func TestPinnedToWrongType(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", pinnedTo("server-00"))
	manager := w.start(w.client)
	profile := w.profile()
	profile.Selector = labels.SelectorFromSet(labels.Set{"gpu": "another"})
	manager.inventory.SetType(profile)
	manager.round()
	claimed := condition(w.get(key), v1alpha1.ConditionClaimed)
	if claimed.Reason != v1alpha1.ReasonNoMatchingType || !strings.Contains(claimed.Message, "server-00 is not of this type") {
		t.Errorf("%s: %q; want NoMatchingType", claimed.Reason, claimed.Message)
	}
	if phase := w.get(key).Status.Phase; phase != v1alpha1.MachineFailed {
		t.Errorf("phase %s, want Failed", phase)
	}
}
