// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress knows what a tenant is to hear of the servers behind its NodeClaims: where one is on its way to the
// node, that it has been given up, and that it is in trouble although its node is up.
package progress
