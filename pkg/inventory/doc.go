// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory knows the BareMetalHosts: which of them can be claimed, which NodeTypes they belong to, and which one a
// claim gets. It holds them in memory, indexed, so that neither a choice nor a count looks at every host. It writes
// nothing: the claim itself is the Machine controller's, and what this package has given out is only assumed until the
// claim shows on the host.
package inventory
