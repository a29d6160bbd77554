// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceclaims changes allocated resource claims so that Karpenter's core schedules pods which share one.
//
// Core v1.14.1 has two bugs with them. It looks only at labels for where the devices of a claim are, while the scheduler
// names the node by a field: a pod that shares a claim with a running one would get a new server, which it cannot use. And
// when several pods that share a claim leave a node together, core allocates devices to that claim twice, and panics; until
// they have gone, no pod of the tenant gets a server.
package resourceclaims
