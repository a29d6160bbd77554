// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// Counts of hosts. A host that is claimed and in error counts as both.
type Counts struct {
	Total, Claimed, Available, Error int32
	// NotReady hosts are neither claimed, in error, quarantined nor too small, and still not to be had: inspecting, paused, detached and
	// so on.
	NotReady int32
	// Quarantined hosts are kept out of the pool until an operator says that they are well, whatever else is the matter
	// with them.
	Quarantined int32
	// TooSmall hosts have less than the type says, whatever else is the matter with them. They are never available, and not
	// counted as not ready.
	TooSmall int32
}

func (c Counts) plus(other Counts) Counts {
	c.Total += other.Total
	c.Claimed += other.Claimed
	c.Available += other.Available
	c.Error += other.Error
	c.NotReady += other.NotReady
	c.Quarantined += other.Quarantined
	c.TooSmall += other.TooSmall
	return c
}

func (c Counts) minus(other Counts) Counts {
	return c.plus(Counts{-other.Total, -other.Claimed, -other.Available, -other.Error, -other.NotReady, -other.Quarantined, -other.TooSmall})
}

// capacity as the API tells it. At most remaining servers are available, whatever is there.
func (c Counts) capacity(remaining int32) v1alpha1.Capacity {
	return v1alpha1.Capacity{
		Total: c.Total, Claimed: c.Claimed, Available: min(c.Available, remaining), Error: c.Error, Quarantined: c.Quarantined,
		TooSmall: c.TooSmall,
	}
}

// String describes the counts: "2 servers match, 2 claimed, 0 in error".
func (c Counts) String() string {
	return capacity.Describe(c.capacity(c.Available), c.NotReady, "")
}
