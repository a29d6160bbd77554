// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// refusalMemory is how long a NodePool counts as one that gets no server, unless it gets one. The reason, such as a limit, a
// quota or another tenant, does not show in the instance types.
const refusalMemory = 5 * time.Minute

// refusals stores which NodePools were refused for lack of a server.
type refusals struct {
	mu    sync.Mutex
	since map[string]time.Time
}

func (r *refusals) record(nodeClaim *karpenterv1.NodeClaim, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since == nil {
		r.since = map[string]time.Time{}
	}
	r.since[nodeClaim.Labels[karpenterv1.NodePoolLabelKey]] = now
}

func (r *refusals) forget(nodeClaim *karpenterv1.NodeClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.since, nodeClaim.Labels[karpenterv1.NodePoolLabelKey])
}

func (r *refusals) lately(nodePool string, clk clock.PassiveClock) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, found := r.since[nodePool]
	return found && clk.Since(since) < refusalMemory
}

// RefusedLately tells whether a NodeClaim of the NodePool was refused within the last five minutes for lack of a server, and
// none has got one since.
func (c *CloudProvider) RefusedLately(nodePool string) bool {
	return c.refusals.lately(nodePool, c.clock)
}
