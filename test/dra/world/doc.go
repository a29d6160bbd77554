// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world runs what the sync of Dynamic Resource Allocation works between: a host, which is the management cluster,
// with the real scheduler, the real controllers, nodes and devices, and the control planes of tenants whose pods run
// there. It plays what this project has no part in: vCluster's pod syncer, and a driver that publishes devices.
package world
