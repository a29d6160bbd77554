// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// look is how a state or a verdict is drawn: a sign, and a group that has a colour.
type look struct{ Group, Sign string }

// The groups of states. style.css has their colours, under these names.
const (
	used    = "used"
	transit = "transit"
	broken  = "broken"
	out     = "out"
	free    = "free"
)

// groups has the groups in the order of drawing, with their words.
var groups = []struct{ Name, Sign, Words string }{
	{used, "●", "used"}, {transit, "▶", "in transit"}, {broken, "✗", "broken"}, {out, "–", "out of the pool"}, {free, "○", "free"},
}

// states has the states in the order of listing.
var states = []struct {
	State view.State
	look
}{
	{view.State(v1alpha1.MachineJoined), look{used, "●"}},
	{view.State(inventory.StateClaimed), look{used, "◆"}},
	{view.State(v1alpha1.MachinePending), look{transit, "…"}},
	{view.State(v1alpha1.MachineClaiming), look{transit, "…"}},
	{view.State(v1alpha1.MachineClaimed), look{transit, "▹"}},
	{view.State(v1alpha1.MachineProvisioning), look{transit, "▸"}},
	{view.State(v1alpha1.MachineProvisioned), look{transit, "▶"}},
	{view.State(v1alpha1.MachineReleasing), look{transit, "◂"}},
	{view.State(v1alpha1.MachineFailed), look{broken, "✗"}},
	{view.State(inventory.StateError), look{broken, "✗"}},
	{view.State(inventory.StateQuarantined), look{broken, "!"}},
	{view.State(inventory.StateUnavailable), look{out, "–"}},
	{view.State(inventory.StateAvailable), look{free, "○"}},
}

func lookOf(state view.State) look {
	for _, entry := range states {
		if entry.State == state {
			return entry.look
		}
	}
	return look{out, "?"}
}

// verdicts has the signs of "kubectl metal3 explain".
var verdicts = map[view.Verdict]struct{ Class, Sign, Words string }{
	view.Good: {"good", "✓", "As it should be: "}, view.Waiting: {"waiting", "…", "On its way: "}, view.Wrong: {"wrong", "✗", "Wrong: "},
	view.Note: {"note", "·", ""},
}
