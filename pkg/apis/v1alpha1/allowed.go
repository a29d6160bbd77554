// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// allOfProvider, after the name of a NodeProvider, stands for all of its types in allowedNodeTypes.
const allOfProvider = ".*"

// Allows tells whether the tenant may have servers of a NodeType, which is one of the NodeProvider of that name.
func (in *TenantCluster) Allows(nodeType, provider string) bool {
	if in.Spec.AllowedNodeTypes == nil {
		return true
	}
	allowed := *in.Spec.AllowedNodeTypes
	return slices.Contains(allowed, nodeType) || slices.Contains(allowed, provider+allOfProvider)
}
