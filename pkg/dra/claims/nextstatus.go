// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// nextStatus returns what to write into the status of a claim in the tenant, on the way from the current to the wanted
// status. It returns false if nothing is to be written.
//
// An allocation is immutable: nextStatus first returns a status without one, and the new one at the next call. A tenant's
// API server that knows fewer fields than the host's drops some of an allocation; it is still the same allocation, or it
// would be cleared and written for ever. While the claim is being deleted, no consumers are added.
func nextStatus(current, wanted *resourcev1.ResourceClaimStatus, deleting bool) (*resourcev1.ResourceClaimStatus, bool) {
	next := wanted.DeepCopy()
	if current.Allocation != nil && wanted.Allocation != nil {
		if !sameAllocation(current.Allocation, wanted.Allocation) {
			return &resourcev1.ResourceClaimStatus{}, true
		}
		next.Allocation = current.Allocation.DeepCopy()
	}
	if deleting {
		next.ReservedFor = slices.DeleteFunc(next.ReservedFor, func(consumer resourcev1.ResourceClaimConsumerReference) bool {
			return !slices.Contains(current.ReservedFor, consumer)
		})
	}
	return next, !equality.Semantic.DeepEqual(current, next)
}

// sameAllocation tells whether two allocations are of the same devices to the same requests. Fields that not every server
// knows count only where both have them.
func sameAllocation(a, b *resourcev1.AllocationResult) bool {
	if a.AllocationTimestamp != nil && b.AllocationTimestamp != nil && !a.AllocationTimestamp.Equal(b.AllocationTimestamp) {
		return false
	}
	return slices.EqualFunc(a.Devices.Results, b.Devices.Results, func(a, b resourcev1.DeviceRequestAllocationResult) bool {
		return a.Request == b.Request && a.Driver == b.Driver && a.Pool == b.Pool && a.Device == b.Device &&
			(a.ShareID == nil || b.ShareID == nil || *a.ShareID == *b.ShareID)
	})
}
