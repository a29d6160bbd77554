// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

// NodeClassNameField is the field by which the tenant's cache indexes NodeClaims. Karpenter's operator makes that index.
const NodeClassNameField = "spec.nodeClassRef.name"
