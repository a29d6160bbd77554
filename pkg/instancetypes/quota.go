// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"math"
	"slices"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// RemainingQuota is how much more a tenant may get within its quota. What is nil is not limited.
type RemainingQuota struct {
	// Servers, of whatever type.
	Servers *int64
	// GPUs are accelerators, of all kinds together.
	GPUs *int64
}

// LimitTypes returns types of which no offering has more servers than the tenant may still get. Those that have no more
// anyway are returned as they are; the others are copies. A type that the tenant may not get keeps its offerings, which are
// not available: to core the nodes of a type that vanishes have drifted.
//
// NodeClaims for different offerings may together still be more than the remaining quota. The manager refuses those, and the
// next pass finds nothing available.
func (a RemainingQuota) LimitTypes(types []*cloudprovider.InstanceType) []*cloudprovider.InstanceType {
	if a.Servers == nil && a.GPUs == nil {
		return types
	}
	result := make([]*cloudprovider.InstanceType, len(types))
	for i, instanceType := range types {
		result[i] = limitType(instanceType, a.Of(instanceType))
	}
	return result
}

// LimitServers changes free servers to no more than the tenant may still get.
func (a RemainingQuota) LimitServers(free []FreeServers) []FreeServers {
	for i := range free {
		free[i].Count = int32(min(int64(free[i].Count), a.Of(free[i].InstanceType)))
	}
	return slices.DeleteFunc(free, func(servers FreeServers) bool { return servers.Count <= 0 })
}

// Of is how many servers of a type the tenant may still get.
func (a RemainingQuota) Of(instanceType *cloudprovider.InstanceType) int64 {
	left := int64(math.MaxInt64)
	if a.Servers != nil {
		left = *a.Servers
	}
	if each := v1alpha1.CountAccelerators(instanceType.Capacity); a.GPUs != nil && each > 0 {
		left = min(left, *a.GPUs/each)
	}
	return max(0, left)
}

// Unavailable returns the type with its offerings, none of which is available. Their reservations keep their capacity: of a
// reservation that several NodePools have, core takes the least, so that no other NodePool would get a server of the type.
func Unavailable(instanceType *cloudprovider.InstanceType) *cloudprovider.InstanceType {
	offerings := make(cloudprovider.Offerings, len(instanceType.Offerings))
	for i, offering := range instanceType.Offerings {
		unavailable := *offering
		unavailable.Available = false
		offerings[i] = &unavailable
	}
	return withOfferings(instanceType, offerings)
}

func limitType(instanceType *cloudprovider.InstanceType, left int64) *cloudprovider.InstanceType {
	offerings := make(cloudprovider.Offerings, len(instanceType.Offerings))
	changed := false
	for i, offering := range instanceType.Offerings {
		offerings[i] = offering
		if left == 0 && offering.Available || int64(offering.ReservationCapacity) > left {
			limited := *offering
			limited.Available = limited.Available && left > 0
			limited.ReservationCapacity = int(min(int64(offering.ReservationCapacity), left))
			offerings[i], changed = &limited, true
		}
	}
	if !changed {
		return instanceType
	}
	return withOfferings(instanceType, offerings)
}
