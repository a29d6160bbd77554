// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// TestClaimsFirst: while servers are being installed, a Machine is made. It has its server before the next installation
// goes on.
func TestClaimsFirst(t *testing.T) {
	fresh, installing := &v1alpha1.Machine{ObjectMeta: metaIn("tenant", "fresh")},
		&v1alpha1.Machine{ObjectMeta: metaIn("tenant", "installing")}
	installing.Status.HostRef = &v1alpha1.HostReference{Name: "server-00"}
	for name, tc := range map[string]struct {
		reason string
		event  event.CreateEvent
		first  string
	}{
		"New":           {"nothing is launched until it has a server", event.CreateEvent{Object: fresh}, "fresh"},
		"NewWithServer": {"it was moved here with its status, and is installed in its turn", event.CreateEvent{Object: installing}, "other"},
		"AtStart":       {"the manager before has not come to it", event.CreateEvent{Object: fresh, IsInInitialList: true}, "fresh"},
		"AtStartServed": {"ten thousand have one", event.CreateEvent{Object: installing, IsInInitialList: true}, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			waiting := priorityqueue.New[reconcile.Request]("test")
			defer waiting.ShutDown()
			priority := withServer
			if tc.event.IsInInitialList {
				priority = handler.LowPriority // that of all others at a start
			}
			enqueue(waiting, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "tenant", Name: "other"}}, priority)
			claimsFirst().Create(t.Context(), tc.event, waiting)
			if got, _ := waiting.Get(); got.Name != tc.first {
				t.Errorf("%s: %s comes first, want %s", tc.reason, got.Name, tc.first)
			}
		})
	}
}

// A Machine that has got its server gives its precedence up, or a thousand installations would be as urgent as a claim.
func TestPrecedenceEndsWithTheClaim(t *testing.T) {
	w := newFixture(t, 0)
	key := w.machine("m", func(machine *v1alpha1.Machine) { standAlone(machine) })
	process := w.start(w.client)
	look := func(want int) {
		t.Helper()
		result, err := process.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		if err != nil || result.Priority == nil || *result.Priority != want {
			t.Fatalf("%s: the priority is %v, %v, want %d", condition(w.get(key), v1alpha1.ConditionReady).Reason, result.Priority, err, want)
		}
	}
	look(withoutServer)
	process.inventory.SetHost(w.api.CreateHost(t, env.AvailableHost(w.metal3, "server-00", nil)))
	look(withServer)
}
