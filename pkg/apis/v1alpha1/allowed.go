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

// AllowsStandAlone tells whether a Machine without a tenant may have servers of a NodeType, in a namespace with these
// tenants: all of them if there are none, and otherwise those of the tenants. Their providers make Machines there, and
// leaving the tenant out must not get them any more.
func AllowsStandAlone(tenants []*TenantCluster, nodeType, provider string) bool {
	return len(tenants) == 0 || slices.ContainsFunc(tenants, func(tenant *TenantCluster) bool { return tenant.Allows(nodeType, provider) })
}
