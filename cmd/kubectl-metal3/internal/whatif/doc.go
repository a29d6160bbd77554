// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package whatif predicts what a fleet does with a workload, or without some servers, or with more. Karpenter's own provisioner plans on
// a copy of a snapshot, with the instance types of the provider; the provider's Create makes the Machines, and the inventory of the
// manager chooses the server of each, until nothing more is planned. Nothing is written to a cluster.
package whatif
