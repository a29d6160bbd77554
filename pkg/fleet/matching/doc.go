// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package matching decides whether a NodeType fits a request, and says why not in values that callers turn into words.
// The manager, the webhook and the provider ask it the same question about a Machine, a NodePool and a pod; it needs no
// client and no BareMetalHost.
package matching
