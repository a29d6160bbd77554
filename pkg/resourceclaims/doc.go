// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceclaims knows how resource claims that are allocated have to look for Karpenter's core to plan with them.
//
// Core v1.14.1 makes two mistakes with them. It looks only at labels for where the devices of a claim are, while the
// scheduler names the node by a field: a pod that shares a claim with a running one would be given a new server, which it
// cannot use. And when several pods that share a claim leave a node together, core gives devices to that claim twice, and
// panics; until they have gone, no pod of the tenant gets a server. Both are avoided by what core is shown.
package resourceclaims
