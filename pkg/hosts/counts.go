// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
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

// String tells the counts in words: "2 servers match, 2 claimed, 0 in error".
func (c Counts) String() string {
	noun := "servers match"
	if c.Total == 1 {
		noun = "server matches"
	}
	text := fmt.Sprintf("%d %s, %d claimed, %d in error", c.Total, noun, c.Claimed, c.Error)
	if c.Quarantined > 0 {
		text += fmt.Sprintf(", %d quarantined", c.Quarantined)
	}
	if c.NotReady > 0 {
		text += fmt.Sprintf(", %d not ready", c.NotReady)
	}
	if c.TooSmall > 0 { // last: their names may follow
		text += fmt.Sprintf(", %d too small", c.TooSmall)
	}
	return text
}
