// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

func hostReference(host *bmov1alpha1.BareMetalHost) v1alpha1.HostReference {
	return v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID}
}

// consume makes a Machine the consumer of a host.
func (w *fixture) consume(name string, machine *v1alpha1.Machine) {
	w.t.Helper()
	w.edithost(name, func(host *bmov1alpha1.BareMetalHost) {
		host.Spec.ConsumerRef = hosts.OwnerOf(machine).ConsumerRef()
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, v1alpha1.NodeTypeAnnotationKey, w.nodeType)
	})
}

func (w *fixture) edithost(name string, change func(*bmov1alpha1.BareMetalHost)) {
	w.t.Helper()
	host := &bmov1alpha1.BareMetalHost{}
	if err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.metal3, Name: name}, host); err != nil {
		w.t.Fatal(err)
	}
	change(host)
	if err := w.client.Update(w.t.Context(), host); err != nil {
		w.t.Fatal(err)
	}
}

// TestChosenBefore: a Machine names a host that was chosen for it, and its status names none.
func TestChosenBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// choice is what the Machine names, of type "" for the fixture's.
		choice func(*fixture) (v1alpha1.HostReference, string)
		// text is the annotation, if it is not as this version writes it.
		text   func(v1alpha1.HostReference, string) string
		before func(*fixture, *process, *v1alpha1.Machine)
		want   string
		// unreadable is whether an event says that the annotation is.
		unreadable bool
	}{
		"UnreadableClaimed": {
			reason: "a second host would be claimed, and the first one released", want: "server-01", unreadable: true,
			text:   func(host v1alpha1.HostReference, _ string) string { return host.Name },
			before: func(w *fixture, _ *process, m *v1alpha1.Machine) { w.consume("server-01", m) },
		},
		"Unreadable": {
			reason: "no host is claimed for it, so that it gets one as any other", want: "server-00", unreadable: true,
			text: func(v1alpha1.HostReference, string) string { return "{}" },
		},
		"Claimed": {
			reason: "a manager crashed before the status named the claim: a second host would be claimed",
			before: func(w *fixture, _ *process, m *v1alpha1.Machine) { w.consume("server-01", m) }, want: "server-01",
		},
		"Free": {
			reason: "another manager may be about to claim it: if this one took another, the Machine would have two", want: "server-01",
		},
		"AssumedForAnother": {
			reason: "what this manager has in mind for others does not bind the other manager", want: "server-01",
			before: func(w *fixture, p *process, _ *v1alpha1.Machine) {
				assumed := p.inventory.Assume(inventory.Choice{Host: hostReference(&w.hosts()[1]), NodeType: w.nodeType}, "another")
				if !assumed {
					w.t.Fatal("the host cannot be assumed")
				}
			},
		},
		"CacheBehind": {
			reason: "it was given back, and the other manager knows already", want: "server-01",
			before: func(w *fixture, p *process, m *v1alpha1.Machine) {
				stale := w.hosts()[1]
				stale.Spec.ConsumerRef = hosts.OwnerOf(m).ConsumerRef()
				stale.Spec.ConsumerRef.Name = "another"
				p.inventory.SetHost(&stale)
			},
		},
		"Taken": {
			reason: "it belongs to another Machine by now", want: "server-00",
			before: func(w *fixture, _ *process, _ *v1alpha1.Machine) {
				w.consume("server-01", w.get(w.machine("other", standAlone)))
			},
		},
		"Paused": {
			reason: "no Machine may have it", want: "server-00",
			before: func(w *fixture, _ *process, _ *v1alpha1.Machine) {
				w.edithost("server-01", func(host *bmov1alpha1.BareMetalHost) {
					metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.PausedAnnotation, "")
				})
			},
		},
		"OfAnotherType": {
			reason: "the annotation gives no right to a type that the Machine may not have", want: "server-00",
			choice: func(w *fixture) (v1alpha1.HostReference, string) { return hostReference(&w.hosts()[1]), "another-type" },
		},
		"MadeAnew": {
			reason: "a host of the same name is another host", want: "server-00",
			choice: func(w *fixture) (v1alpha1.HostReference, string) {
				reference := hostReference(&w.hosts()[1])
				reference.UID = "former"
				return reference, ""
			},
		},
		"NoSuchHost": {
			reason: "it has been deleted", want: "server-00",
			choice: func(w *fixture) (v1alpha1.HostReference, string) {
				return v1alpha1.HostReference{Namespace: w.metal3, Name: "server-99", UID: "1"}, ""
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 2)
			key, running := w.machine("m", standAlone), w.start(w.client)
			host, nodeType := hostReference(&w.hosts()[1]), ""
			if tc.choice != nil {
				host, nodeType = tc.choice(w)
			}
			if nodeType == "" {
				nodeType = w.nodeType
			}
			w.edit(key, func(m *v1alpha1.Machine) {
				m.SetChosenHost(host, nodeType)
				if tc.text != nil {
					m.Annotations[v1alpha1.ChosenHostAnnotationKey] = tc.text(host, nodeType)
				}
			})
			for _, host := range w.hosts() {
				running.inventory.SetHost(&host)
			}
			if tc.before != nil {
				tc.before(w, running, w.get(key))
			}
			for range 3 {
				_, _ = running.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			}
			machine, has := w.get(key), []string{}
			for _, host := range w.hosts() {
				if hosts.Owns(hosts.OwnerOf(machine), &host) {
					has = append(has, host.Name)
				}
			}
			if len(has) != 1 || has[0] != tc.want || machine.Status.HostRef == nil || machine.Status.HostRef.Name != tc.want {
				t.Errorf("%s\nthe Machine has claimed %v and its status names %v, want %s", tc.reason, has, machine.Status.HostRef, tc.want)
			}
			if reported := running.reported(v1alpha1.ChosenHostAnnotationKey); reported != tc.unreadable {
				t.Errorf("%s\nan event says that the choice is unreadable: %t", tc.reason, reported)
			}
			if chosen, _ := machine.Host(); chosen.Name != tc.want || len(machine.Finalizers) != 1 {
				t.Errorf("%s\nit names %+v as chosen, and has finalizers %v", tc.reason, chosen, machine.Finalizers)
			}
			claimed := tc.before != nil && tc.unreadable // found by its claim: the status counts from now on
			if chosen, err := machine.ChosenHost(); !claimed && (err != nil || chosen == nil || chosen.Name != tc.want) {
				t.Errorf("%s\nits annotation names %+v, %v", tc.reason, chosen, err)
			}
		})
	}
}

// TestChosenBeforeAndRefused: a Machine that gets no server does not keep a choice: the provider would wait for it.
func TestChosenBeforeAndRefused(t *testing.T) {
	w := newFixture(t, 1)
	key, running := w.machine("m", standAlone), w.start(w.client)
	w.edit(key, func(m *v1alpha1.Machine) { m.SetChosenHost(hostReference(&w.hosts()[0]), w.nodeType) })
	w.consume("server-00", w.get(w.machine("other", standAlone)))
	running.sweeps = false
	running.round()
	running.round()
	machine := w.get(key)
	if machine.HasHost() || condition(machine, v1alpha1.ConditionReady).Reason != v1alpha1.ReasonNoCapacity {
		t.Errorf("annotations %v, condition %v", machine.Annotations, condition(machine, v1alpha1.ConditionReady))
	}
}

// TestDeletedWhileClaiming: the host that was chosen is given back, if it was claimed.
func TestDeletedWhileClaiming(t *testing.T) {
	for name, claimed := range map[string]bool{"Claimed": true, "NotClaimed": false} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 1)
			key, running := w.machine("m", standAlone), w.start(w.client)
			w.edit(key, func(m *v1alpha1.Machine) {
				secure(m)
				m.SetChosenHost(hostReference(&w.hosts()[0]), w.nodeType)
			})
			if claimed {
				w.consume("server-00", w.get(key))
			}
			if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
				t.Fatal(err)
			}
			running.sweeps = false
			w.until("gone", func() *process { return running }, func() bool { return w.get(key) == nil })
			w.checkNothingLeft()
		})
	}
}

// TestSweepKnowsClaimsInTheMaking: the orphan sweep tells a claim in the making from one that was left behind.
func TestSweepKnowsClaimsInTheMaking(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*fixture, *v1alpha1.Machine)
		stays  bool
	}{
		"Chosen": {"the status is about to name it", func(w *fixture, m *v1alpha1.Machine) {
			m.SetChosenHost(hostReference(&w.hosts()[0]), w.nodeType)
		}, true},
		"AnotherChosen": {"a manager that was paused claimed it too late", func(w *fixture, m *v1alpha1.Machine) {
			m.SetChosenHost(hostReference(&w.hosts()[1]), w.nodeType)
		}, false},
		"NotChosen": {"the choice was dropped", func(*fixture, *v1alpha1.Machine) {}, false},
		"Unreadable": {"it may be this host that was chosen", func(_ *fixture, m *v1alpha1.Machine) {
			m.Annotations = map[string]string{v1alpha1.ChosenHostAnnotationKey: "server-00"}
		}, true},
		"UnreadableAndNamed": {"the status counts, whatever was chosen", func(w *fixture, m *v1alpha1.Machine) {
			m.Annotations = map[string]string{v1alpha1.ChosenHostAnnotationKey: "server-00"}
			host := hostReference(&w.hosts()[1])
			m.Status.HostRef = &host
		}, false},
		"HasAnother": {"the status counts, whatever was chosen", func(w *fixture, m *v1alpha1.Machine) {
			m.SetChosenHost(hostReference(&w.hosts()[0]), w.nodeType)
			host := hostReference(&w.hosts()[1])
			m.Status.HostRef = &host
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 2)
			// The cache does not show the Machine yet, and the same follows.
			key, p := w.machine("m", standAlone), w.startWith(behind(w.api.Client, nil), w.client)
			machine := w.get(key)
			tc.change(w, machine)
			status := machine.Status
			if err := w.client.Update(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			machine.Status = status
			if err := w.client.Status().Update(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			w.consume("server-00", machine)
			host := w.hosts()[0]
			_, err := (OrphanHosts{p.servers, p.inventory, p.recorder}).Reconcile(t.Context(),
				reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&host)})
			if unreadable := strings.HasPrefix(name, "Unreadable") && tc.stays; (err != nil) != unreadable {
				t.Fatal(err)
			}
			if host := w.hosts()[0]; hosts.Owns(hosts.OwnerOf(machine), &host) != tc.stays {
				t.Errorf("%s: the consumer is %v", tc.reason, host.Spec.ConsumerRef)
			}
		})
	}
}
