// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/state/nodepoolhealth"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// lifecycles has core's own lifecycle controller look at a NodeClaim, as its watch would.
func (w *fixture) lifecycles(name string, reader client.Client) {
	w.t.Helper()
	core := lifecycle.NewController(w.clock, w.api, metal{}, noEvents{}, state.NewCluster(w.clock, w.api, metal{}),
		nodepoolhealth.NewState(), nil)
	ctx := options.ToContext(context.Background(), &options.Options{IgnoreDRARequests: true})
	request := reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
	if _, err := reconcile.AsReconciler(reader, core).Reconcile(ctx, request); err != nil {
		w.t.Fatal(err)
	}
}

// TestRegistrationLimit: core's own controller, a clock that the test moves, and servers that take their time.
func TestRegistrationLimit(t *testing.T) {
	type look struct {
		minute int
		// before is what happens just before core looks.
		before func(*fixture)
		alive  bool
	}
	giveUp := func(w *fixture) { w.condition("gpu-1", v1alpha1.ConditionGivenUp, metav1.ConditionTrue) }
	for name, tc := range map[string]struct {
		reason    string
		impatient bool
		looks     []look
	}{
		"CoreAlone": {
			reason:    "what this is all about; were core to change, this test would tell",
			impatient: true,
			looks:     []look{{minute: 14, alive: true}, {minute: 16}},
		},
		"Slow": {
			reason: "a server that makes progress is waited for, however long it takes",
			looks:  []look{{minute: 14, alive: true}, {minute: 16, alive: true}, {minute: 44, alive: true}, {minute: 600, alive: true}},
		},
		"ProviderWasDown": {
			reason: "there was no reconcile for an hour, and core's controller is the first",
			looks:  []look{{minute: 60, alive: true}},
		},
		"GivenUp": {
			reason: "the deadline is the manager's to watch",
			looks:  []look{{minute: 44, alive: true}, {minute: 61, before: giveUp}},
		},
		"MachineGone": {
			reason: "there is nothing to wait for, and core's own time begins when it was last known to be there",
			looks:  []look{{minute: 14, alive: true}, {minute: 30, before: func(w *fixture) { w.deleteMachine("gpu-1") }}},
		},
		"ServerLost": {
			reason: "a Machine without its server gets no node",
			looks:  []look{{minute: 16, before: func(w *fixture) { w.condition("gpu-1", v1alpha1.ConditionClaimed, metav1.ConditionFalse) }}},
		},
		"JoinedAndNotRegistered": {
			reason: "from when the node is there, core has its own time to find it",
			looks: []look{
				{minute: 44, alive: true, before: func(w *fixture) { w.condition("gpu-1", v1alpha1.ConditionJoined, metav1.ConditionTrue) }},
				{minute: 58, alive: true}, {minute: 60},
			},
		},
		"NotSynced": {
			reason: "of a cache that is not filled nothing follows",
			looks: []look{{minute: 44, alive: true, before: func(w *fixture) {
				w.synced = errUnfilled
				w.deleteMachine("gpu-1")
			}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			for _, look := range tc.looks {
				w.setClock(look.minute)
				if look.before != nil {
					look.before(w)
				}
				reader := client.Client(interceptor.NewClient(w.api, Registering(w.clock, w.machines())))
				if tc.impatient {
					reader = w.api
				}
				w.lifecycles("gpu-1", reader)
				nodeClaim := w.nodeClaim("gpu-1")
				if alive := nodeClaim != nil && nodeClaim.DeletionTimestamp.IsZero(); alive != look.alive {
					t.Fatalf("%s: after %d minutes alive is %v, want %v", tc.reason, look.minute, alive, look.alive)
				}
			}
		})
	}
}

// TestMachineOfEarlierNodeClaim is nothing to wait for.
func TestMachineOfEarlierNodeClaim(t *testing.T) {
	w := newFixture(t)
	if err := w.api.Create(t.Context(), launched("gpu-2", "")); err != nil {
		t.Fatal(err)
	}
	earlier := machineOf("gpu-2", "metal3://metal3/server-2/gpu-2")
	earlier.Annotations[v1alpha1.NodeClaimUIDAnnotationKey] = "another"
	if err := w.api.Create(t.Context(), earlier); err != nil {
		t.Fatal(err)
	}
	from, err := w.machines().startOfWait(t.Context(), w.nodeClaim("gpu-2"), w.clock.Now())
	if err != nil || !from.IsZero() {
		t.Errorf("waits from %v, error %v; want not to wait", from, err)
	}
}
