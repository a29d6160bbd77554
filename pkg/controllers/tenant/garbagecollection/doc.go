// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollection deletes what the provider can leave behind: Machines whose NodeClaim is gone, NodeClaims whose
// Machine an operator has deleted, Nodes without either, and join tokens and user data whose Machine is gone.
//
// Nothing is deleted because a cache does not show it, because a list is empty, or because of an error: each deletion
// follows a read from the API server that the one owner does not exist.
package garbagecollection
