// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package environment runs the clusters for tests of the sync of Dynamic Resource Allocation: a host, which is the
// management cluster, with the real scheduler, the real controllers, nodes and devices, and the control planes of
// tenants whose pods run there. It emulates a driver that publishes devices, and either runs vCluster's pod syncer or
// emulates it.
package environment
