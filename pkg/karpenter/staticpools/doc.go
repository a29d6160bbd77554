// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpools limits the NodeClaims of static NodePools (spec.replicas) to the servers that are available.
//
// Karpenter's core creates a NodeClaim for each replica that is missing, whether or not there is a server, and another one
// as soon as the first has failed: with no servers left that is a loop at full speed. Here core gets, in memory, a NodePool
// with no more replicas than there are servers, and reconciles it again when servers become free.
package staticpools
