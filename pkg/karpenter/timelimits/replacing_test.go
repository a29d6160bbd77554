// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	pscheduling "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// TestReplacementLimit: core's own queue waits for a replacement that takes longer than its ten minutes, and neither
// un-taints the old node nor forgets the command meanwhile.
func TestReplacementLimit(t *testing.T) {
	type look struct {
		minute int
		before func(*fixture)
		waits  bool
	}
	join := func(w *fixture) { w.condition("gpu-1", v1alpha1.ConditionJoined, metav1.ConditionTrue) }
	for name, tc := range map[string]struct {
		reason    string
		impatient bool
		looks     []look
		// replaced is true when the old node is gone at the end.
		replaced bool
	}{
		"CoreAlone": {
			reason: "what this is all about", impatient: true,
			looks: []look{{minute: 9, waits: true}, {minute: 11}},
		},
		"Slow": {
			reason: "a replacement that takes 25 minutes replaces the old node, once",
			looks: []look{
				{minute: 9, waits: true}, {minute: 11, waits: true}, {minute: 25, waits: true},
				{minute: 26, before: func(w *fixture) { w.initialize("gpu-1") }},
			},
			replaced: true,
		},
		"NeverReady": {
			reason: "a node that never gets ready is core's to give up, counted from when it joined",
			looks:  []look{{minute: 25, waits: true, before: join}, {minute: 34, waits: true}, {minute: 36}},
		},
		"HeldInError": {
			reason: "a server that is held in error may stay so for good, and the old node must not stay tainted for it",
			looks: []look{
				{minute: 25, waits: true},
				{minute: 26, waits: true, before: func(w *fixture) { w.suspend("gpu-1", true) }}, {minute: 34, waits: true}, {minute: 36},
			},
		},
		"ErrorThatPasses": {
			reason: "an error that passes within core's own time costs nothing",
			looks: []look{
				{minute: 25, waits: true},
				{minute: 26, waits: true, before: func(w *fixture) { w.suspend("gpu-1", true) }},
				{minute: 33, waits: true, before: func(w *fixture) { w.suspend("gpu-1", false) }}, {minute: 42, waits: true},
			},
		},
		"GivenUp": {
			reason: "a server that is given up replaces nothing",
			looks: []look{
				{minute: 25, waits: true},
				{minute: 36, before: func(w *fixture) { w.condition("gpu-1", v1alpha1.ConditionGivenUp, metav1.ConditionTrue) }},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			queue := w.replaces(t, "gpu-1")
			for _, look := range tc.looks {
				w.setClock(look.minute)
				if look.before != nil {
					look.before(w)
				}
				reader := client.Client(interceptor.NewClient(w.api, Replacing(w.api, queue, w.clock, w.machines())))
				if tc.impatient {
					reader = w.api
				}
				request := reconcile.Request{NamespacedName: client.ObjectKey{Name: "old"}}
				if _, err := reconcile.AsReconciler(reader, queue).Reconcile(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				if waits := !queue.IsEmpty(); waits != look.waits {
					t.Fatalf("%s: after %d minutes it waits: %v, want %v", tc.reason, look.minute, waits, look.waits)
				}
				if tainted := w.oldNodeIsTainted(); !tc.replaced && tainted != look.waits {
					t.Errorf("%s: after %d minutes the old node is tainted: %v, want %v", tc.reason, look.minute, tainted, look.waits)
				}
			}
			if old := w.nodeClaim("old"); (old == nil || !old.DeletionTimestamp.IsZero()) != tc.replaced {
				t.Errorf("%s: the old node is replaced: %v, want %v", tc.reason, !tc.replaced, tc.replaced)
			}
		})
	}
}

// replaces makes a command that replaces the node "old" by that of the NodeClaim, as core's disruption controller does.
func (w *fixture) replaces(t *testing.T, replacement string) *disruption.Queue {
	t.Helper()
	old := launched("old", "metal3://metal3/server-0/old")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	node.Spec.ProviderID, node.Spec.Taints = old.Status.ProviderID, []corev1.Taint{karpv1.DisruptedNoScheduleTaint}
	for _, object := range []client.Object{old, node} {
		if err := w.api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	queue := disruption.NewQueue(w.api, noEvents{}, state.NewCluster(w.clock, w.api, metal{}), w.clock, nil)
	stateNode := state.NewNode()
	stateNode.Node, stateNode.NodeClaim = node, old
	queue.ProviderIDToCommand[old.Status.ProviderID] = &disruption.Command{
		Method:            &disruption.Drift{},
		CreationTimestamp: start,
		Candidates:        []*disruption.Candidate{{StateNode: stateNode}},
		Replacements:      []*disruption.Replacement{{NodeClaim: &pscheduling.NodeClaim{}, Name: replacement}},
	}
	return queue
}

func (w *fixture) initialize(name string) {
	w.t.Helper()
	nodeClaim := w.nodeClaim(name)
	for i := range nodeClaim.Status.Conditions {
		nodeClaim.Status.Conditions[i].Status = metav1.ConditionTrue
	}
	if err := w.api.Status().Update(context.Background(), nodeClaim); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) oldNodeIsTainted() bool {
	w.t.Helper()
	node := &corev1.Node{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: "old"}, node); err != nil {
		w.t.Fatal(err)
	}
	return len(node.Spec.Taints) > 0
}
