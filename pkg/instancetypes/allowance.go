// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"math"
	"slices"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Allowance is how much more a tenant may have. What is nil is not bounded.
type Allowance struct {
	// Servers, of whatever type.
	Servers *int64
	// GPUs are accelerators, of all kinds together.
	GPUs *int64
}

// Narrow returns types of which no offering has more servers than the tenant may still have. Those that have no more
// anyway are returned as they are; the others are copies. A type that may not be had at all keeps its offerings, which
// are not available: core takes the nodes of a type that vanishes for drifted.
//
// Claims that different offerings are for may together still be more than the allowance. The manager refuses those, and
// the next time there is nothing left to plan with.
func (a Allowance) Narrow(types []*cloudprovider.InstanceType) []*cloudprovider.InstanceType {
	if a.Servers == nil && a.GPUs == nil {
		return types
	}
	result := make([]*cloudprovider.InstanceType, len(types))
	for i, instanceType := range types {
		result[i] = narrow(instanceType, a.Of(instanceType))
	}
	return result
}

// Bound returns rooms of which none has more servers than the tenant may still have.
func (a Allowance) Bound(rooms []Room) []Room {
	for i := range rooms {
		rooms[i].Free = int32(min(int64(rooms[i].Free), a.Of(rooms[i].InstanceType)))
	}
	return slices.DeleteFunc(rooms, func(room Room) bool { return room.Free <= 0 })
}

// Of is how many of a type the tenant may still have.
func (a Allowance) Of(instanceType *cloudprovider.InstanceType) int64 {
	left := int64(math.MaxInt64)
	if a.Servers != nil {
		left = *a.Servers
	}
	if each := v1alpha1.CountAccelerators(instanceType.Capacity); a.GPUs != nil && each > 0 {
		left = min(left, *a.GPUs/each)
	}
	return max(0, left)
}

func narrow(instanceType *cloudprovider.InstanceType, left int64) *cloudprovider.InstanceType {
	offerings := make(cloudprovider.Offerings, len(instanceType.Offerings))
	changed := false
	for i, offering := range instanceType.Offerings {
		offerings[i] = offering
		if left == 0 && offering.Available || int64(offering.ReservationCapacity) > left {
			narrowed := *offering
			narrowed.Available = narrowed.Available && left > 0
			narrowed.ReservationCapacity = int(min(int64(offering.ReservationCapacity), left))
			offerings[i], changed = &narrowed, true
		}
	}
	if !changed {
		return instanceType
	}
	// Not a copy of the struct: core keeps in it what it has worked out of the offerings.
	return &cloudprovider.InstanceType{
		Name:             instanceType.Name,
		Requirements:     instanceType.Requirements,
		Offerings:        offerings,
		Capacity:         instanceType.Capacity,
		DynamicResources: instanceType.DynamicResources,
		Overhead:         instanceType.Overhead,
	}
}
