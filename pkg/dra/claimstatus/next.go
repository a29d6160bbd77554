// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package claimstatus

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Next returns what to write into the status of a claim in the tenant, to come from what is there to what is wanted. It
// reports false if nothing is to be written.
//
// An allocation cannot be changed, only taken back and made again: Next then returns a status without one, and the next
// call another. A tenant's API server that knows fewer fields than the host's drops some of an allocation; it is still the
// same one, or the two would be written in turns for ever. While the claim is being deleted, no consumers are added.
func Next(current, wanted *resourcev1.ResourceClaimStatus, deleting bool) (*resourcev1.ResourceClaimStatus, bool) {
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
