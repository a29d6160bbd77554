// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout replaces drifted nodes where servers are finite. Karpenter launches the replacement first and drains the old
// node afterwards; without a free server it waits for ever, and for a static NodePool it creates and loses NodeClaims without
// end. Here such a node is deleted first: core drains it, its server is released, and the pods that were drained get that
// server again, installed with the current image. This is done one node at a time, within the NodePool's budgets for drift.
//
// Two disruption methods replace core's. Core still decides which nodes may be disrupted, with its rules for do-not-disrupt,
// PodDisruptionBudgets and terminationGracePeriod, and drains them and publishes the events. As long as a replacement can be
// launched, core's own methods decide the rest too.
//
// A budget limits how many nodes are missing. Core counts nodes, and stops counting one when its server is released, so the
// NodeClaims that were deleted first are recorded on the NodePool (replacements.go) until their replacement is initialized.
package rollout
