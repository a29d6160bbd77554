// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autonodes knows which NodePools and MetalNodeClasses follow from the autoNodes of a TenantCluster, and keeps
// the tenant cluster at that: what somebody edits there is put back, and what is not called for any more is deleted.
package autonodes
