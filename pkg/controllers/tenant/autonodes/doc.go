// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autonodes writes the NodePools and MetalNodeClasses of a tenant from the autoNodes of its TenantCluster. It reverts
// edits of these objects in the tenant cluster, and deletes those whose entry is gone.
package autonodes
