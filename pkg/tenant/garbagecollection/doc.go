// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollection knows what the provider can leave behind, and when it may go: Machines whose NodeClaim is
// gone, NodeClaims whose Machine an operator has deleted, Nodes that have neither any more, and join tokens and user data
// whose Machine is gone.
//
// Nothing is deleted because a cache does not show it, because a list is empty, or because of an error: each deletion
// follows a read from the API server that says that the one owner does not exist.
package garbagecollection
