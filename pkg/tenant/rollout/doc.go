// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout knows how drifted nodes are replaced where servers are finite. Karpenter launches the replacement first
// and drains the old node afterwards; without a spare server it waits for good, and for a static pool it makes and loses
// NodeClaims without end. Here such a node goes first: its NodeClaim is deleted, core drains it, its server is released,
// and comes back, installed as it should be, for whoever was drained. There is one after the other of them, within the
// NodePool's budgets for drift.
//
// It is done by two methods that take the place of core's in core's own disruption loop. What may be disrupted at all is
// thus core's decision, with its rules for do-not-disrupt, PodDisruptionBudgets and terminationGracePeriod, and so are
// the drain and the events about it. As long as a replacement can be had, core's own methods decide the rest too.
//
// A budget bounds what is missing: core counts nodes and forgets one as soon as its server is being released, so the
// NodeClaims that went first are kept on the NodePool (ledger.go) until their replacement is initialized.
package rollout
