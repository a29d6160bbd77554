// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package whatif predicts what a fleet does with a workload, or with fewer or more servers. Karpenter's own
// provisioner plans on a copy of a snapshot, with the instance types of the provider. The provider's Create makes the
// Machines, and the inventory of the manager chooses a server for each, until nothing more is planned. The package
// writes nothing to a cluster.
package whatif
