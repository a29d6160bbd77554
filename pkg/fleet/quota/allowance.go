// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Allowance returns how many servers a namespace with these tenants may have: the sum of their quotas. For a tenant
// without a quota on servers, the servers of its allowed types count, up to its quota for each type. For a namespace
// without tenants, all servers count. nodeTypes are all NodeTypes, and total returns the number of servers of a type.
func Allowance(tenants []*v1alpha1.TenantCluster, nodeTypes []*v1alpha1.NodeType, total func(nodeType string) int32) (sum int64) {
	servers := func(allowed func(nodeType, madeBy string) bool, rest Rest) (sum int64) {
		for _, nodeType := range nodeTypes {
			if allowed(nodeType.Name, nodeType.MadeBy()) {
				sum += min(int64(total(nodeType.Name)), rest.OwnOf(nodeType.Name))
			}
		}
		return sum
	}
	if len(tenants) == 0 {
		return servers(func(string, string) bool { return true }, Rest{})
	}
	for _, tenant := range tenants {
		if limits := tenant.Spec.Quota; limits != nil && limits.Servers != nil {
			sum += min(*limits.Servers, math.MaxInt32)
		} else {
			sum += servers(tenant.Allows, RestOf(tenant, nil, nil))
		}
	}
	return sum
}
