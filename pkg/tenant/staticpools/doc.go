// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpools knows how many nodes a static NodePool (spec.replicas) can have now.
//
// Karpenter's core makes a NodeClaim for each replica that is missing, whether or not there is a server, and another one
// as soon as the first has failed: with no servers left that is a loop at full speed. Here core is shown, in memory, a
// pool that wants no more than there is, and looks again when servers come back.
package staticpools
