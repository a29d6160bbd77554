// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"math"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// MorePending is how many Machines of a namespace may wait for a server beyond those that it may still have.
const MorePending = 10

// Allowance is how many servers a namespace with these tenants may have: the sum of their quotas. For a tenant without
// a quota on servers, the servers of its allowed types count, no more of each type than its quota. For a namespace
// without tenants, all servers count. nodeTypes are all there are, and total is how many servers one has.
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
			sum += servers(tenant.Allows, RestOf(tenant, nil, nil, nil))
		}
	}
	return sum
}

// MayWait returns whether one Machine more may wait for a server in a namespace in which others have servers or wait for them.
func MayWait(allowance, have, wait int64) bool {
	return wait < max(0, allowance-have)+MorePending
}

// TooManyPending is the message to a Machine that may not wait. It has no numbers: each Machine that comes or goes would change it.
func TooManyPending(namespace string) string {
	return fmt.Sprintf("namespace %s has more Machines without a server than the servers that it may still have and %d more: delete those "+
		"that are not needed, or wait until others have their servers", namespace, MorePending)
}
