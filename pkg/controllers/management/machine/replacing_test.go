// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"sync"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
)

func replaces(nodeType *v1alpha1.NodeType) { nodeType.Spec.OnError = v1alpha1.OnErrorReplace }

// fail makes Metal3 report an error for the server of a Machine.
func (w slowFixture) fail(key types.NamespacedName, kind bmov1alpha1.ErrorType, count int) {
	w.t.Helper()
	w.host(w.get(key).Status.HostRef.Name, func(host *bmov1alpha1.BareMetalHost) {
		host.Status.ErrorType, host.Status.ErrorMessage, host.Status.ErrorCount = kind, "it smells burnt", count
	})
}

// TestOnError: Hold holds, whatever happens; Replace gives up on what trying again does not mend, as long as no node has
// come of it.
func TestOnError(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		onError v1alpha1.OnErrorPolicy
		kind    bmov1alpha1.ErrorType
		count   int
		joined  bool
		alone   bool
		givenUp bool
	}{
		"Default": {reason: "the reference holds", kind: bmov1alpha1.ProvisioningError, count: 9},
		"Hold":    {reason: "and so it can be said", onError: v1alpha1.OnErrorHold, kind: bmov1alpha1.ProvisioningError, count: 9},
		"Replace": {reason: "another server is looked for", onError: v1alpha1.OnErrorReplace, kind: bmov1alpha1.ProvisioningError, count: 1,
			givenUp: true},
		"Transient": {reason: "a BMC may not answer for once", onError: v1alpha1.OnErrorReplace, kind: bmov1alpha1.PowerManagementError,
			count: 1},
		"Persistent": {reason: "but not three times in a row", onError: v1alpha1.OnErrorReplace, kind: bmov1alpha1.PowerManagementError, count: 3,
			givenUp: true},
		"Joined": {reason: "pods run on it, and need no BMC", onError: v1alpha1.OnErrorReplace, kind: bmov1alpha1.PowerManagementError,
			count: 9, joined: true},
		"StandAlone": {reason: "it is quarantined all the same, and waits for its owner", onError: v1alpha1.OnErrorReplace,
			kind: bmov1alpha1.ProvisioningError, count: 1, alone: true, givenUp: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSlowFixture(t, 1, func(nodeType *v1alpha1.NodeType) { nodeType.Spec.OnError = tc.onError })
			manager := w.start(w.client)
			running := func() *process { return manager }
			var key types.NamespacedName
			if tc.alone {
				key = w.machine("m", standAlone)
			} else {
				key = w.invited("m")
			}
			w.writing(key, running)
			if tc.joined {
				w.hangs = false
				w.edit(key, func(m *v1alpha1.Machine) {
					m.Spec.Node = &v1alpha1.MachineNode{Name: "node"}
				})
				w.until("joined", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineJoined })
			}
			w.fail(key, tc.kind, tc.count)
			manager.round()
			machine, host := w.get(key), w.hostOf(key)
			ready := condition(machine, v1alpha1.ConditionReady)
			if machine.Status.Phase != v1alpha1.MachineFailed || ready.Reason != v1alpha1.ReasonHostError ||
				!strings.Contains(ready.Message, string(tc.kind)+": Metal3 could not") && !strings.Contains(ready.Message, string(tc.kind)+" (") {
				t.Errorf("%s: phase %s, condition %+v; want Failed, and Metal3's type of error", tc.reason, machine.Status.Phase, ready)
			}
			if got := w.givenUp(key); got != tc.givenUp {
				t.Errorf("%s: given up %v, want %v", tc.reason, got, tc.givenUp)
			}
			if _, quarantined := host.Annotations[v1alpha1.QuarantinedAnnotationKey]; quarantined != tc.givenUp {
				t.Errorf("%s: quarantined %v, want %v", tc.reason, quarantined, tc.givenUp)
			}
			if !hosts.Owns(hosts.OwnerOf(machine), &host) || host.Spec.Image == nil {
				t.Errorf("%s: the Machine has let its server go before it is deleted", tc.reason)
			}
		})
	}
}

// TestNotAllServersAreQuarantined: an image that installs on no server takes two of them out of the pool, not the fleet.
func TestNotAllServersAreQuarantined(t *testing.T) {
	w := newSlowFixture(t, 4, replaces)
	manager := w.start(w.client)
	running := func() *process { return manager }
	for n, name := range []string{"first", "second", "third"} {
		key := w.invited(name)
		w.writing(key, running)
		w.fail(key, bmov1alpha1.ProvisioningError, 1)
		manager.round()
		manager.round()
		ready := condition(w.get(key), v1alpha1.ConditionReady)
		if want := n < 2; w.givenUp(key) != want {
			t.Fatalf("Machine %s is given up: %v, want %v (%s)", name, !want, want, ready.Message)
		}
		if n == 2 && !strings.Contains(ready.Message, "2 of 4 servers of NodeType "+w.nodeType+" are quarantined") {
			t.Errorf("the message does not say why it is not replaced: %s", ready.Message)
		}
	}
	// The operator removes the annotations, and the third is replaced after all.
	for _, host := range w.hosts() {
		if host.Annotations[v1alpha1.QuarantinedAnnotationKey] != "" {
			w.annotateHost(host.Name, v1alpha1.QuarantinedAnnotationKey, "")
		}
	}
	manager.round()
	if !w.givenUp(types.NamespacedName{Namespace: w.tenant, Name: "third"}) {
		t.Error("the third Machine is not given up, although there is room in the quarantine again")
	}
}

// TestNotAllServersAreQuarantinedAtOnce: that an image installs on no server shows on all of them at the same time.
func TestNotAllServersAreQuarantinedAtOnce(t *testing.T) {
	w := newSlowFixture(t, 6, replaces)
	manager := w.start(w.client)
	running := func() *process { return manager }
	var keys []types.NamespacedName
	for _, name := range []string{"first", "second", "third", "fourth"} {
		key := w.invited(name)
		w.writing(key, running)
		keys = append(keys, key)
	}
	for _, key := range keys {
		w.fail(key, bmov1alpha1.ProvisioningError, 1)
	}
	var group sync.WaitGroup
	for _, key := range keys {
		group.Go(func() { _, _ = manager.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}) })
	}
	group.Wait()
	quarantined := 0
	for _, host := range w.hosts() {
		if host.Annotations[v1alpha1.QuarantinedAnnotationKey] != "" {
			quarantined++
		}
	}
	if quarantined != quarantineLeast {
		t.Errorf("%d of 6 servers are quarantined, want %d", quarantined, quarantineLeast)
	}
}
