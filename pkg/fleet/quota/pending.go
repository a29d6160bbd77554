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

// Allowance is how many servers a namespace with these tenants may have: the sum of their quotas. Servers counts those of the types that
// are allowed, for a tenant without a quota on servers and a namespace without tenants.
func Allowance(tenants []v1alpha1.TenantCluster, servers func(allowed func(nodeType, provider string) bool) int64) (sum int64) {
	if len(tenants) == 0 {
		return servers(func(string, string) bool { return true })
	}
	for i := range tenants {
		if limits := tenants[i].Spec.Quota; limits != nil && limits.Servers != nil {
			sum += min(*limits.Servers, math.MaxInt32)
		} else {
			sum += servers(tenants[i].Allows)
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
