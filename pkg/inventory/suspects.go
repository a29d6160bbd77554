// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"time"
)

// suspectCharged is how long a suspect counts in the quota of its tenant. An operator may take longer to look at it,
// and the fault may have been an outage.
const suspectCharged = 24 * time.Hour

// SuspectTypes lists, sorted, the NodeType of each server that is quarantined only because a tenant reported it, and
// that the tenant has released. These count in the tenant's quota until an operator looks at them, for a day at most.
func (i *Inventory) SuspectTypes(namespace string) (types []string) {
	i.lock.Lock()
	defer i.lock.Unlock()
	for h := range i.suspects[namespace] {
		if !h.eligibility.Claimed && i.now().Before(h.suspectSince.Add(suspectCharged)) {
			types = append(types, h.suspectAs)
		}
	}
	slices.Sort(types)
	return types
}

// SuspectsOf counts a type's servers that are quarantined on the word of tenants alone: of all, and of one namespace.
func (i *Inventory) SuspectsOf(nodeType, namespace string) (all, theirs int32) {
	i.lock.Lock()
	defer i.lock.Unlock()
	for tenant, hosts := range i.suspects {
		for h := range hosts {
			if _, member := h.buckets[nodeType]; !member {
				continue
			}
			if all++; tenant == namespace {
				theirs++
			}
		}
	}
	return all, theirs
}
