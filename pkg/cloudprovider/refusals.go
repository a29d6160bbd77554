// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	// refusalMemory is how long a NodePool counts as one that gets no server, unless it gets one. The reason, such as a limit, a
	// quota or another tenant, does not show in the instance types.
	refusalMemory = 5 * time.Minute
	// firstRetry is how long a type is not offered after a server that looked free was not: the catalog is up to date by then.
	firstRetry = time.Second
	// firstBackoff is the same after any other refusal, which a retry alone does not change.
	firstBackoff = time.Minute
	// maxBackoff is the longest time. It is reached by doubling.
	maxBackoff = 10 * time.Minute
)

// refusals stores what the manager or the management cluster refused. A type that was refused to a NodePool is not offered
// to it for a while. Without that, core would make the same NodeClaims again every ten seconds, for ever.
type refusals struct {
	mu sync.Mutex
	// noServer is when a NodePool was refused for lack of a server.
	noServer map[string]time.Time
	backoffs map[poolType]backoff
}

type poolType struct{ nodePool, nodeType string }

// backoff is what is known of the refusals of a type to a NodePool.
type backoff struct {
	// since and until are when it was refused last, and how long it is not offered.
	since, until time.Time
	on           dependencies
	reason       string
	message      string
}

// dependencies are what a refusal may depend on.
type dependencies struct {
	// versions of NodePool, class, NodeType and TenantCluster.
	versions string
	// released is how many servers the tenant has given back, and with them addresses and shares of quotas.
	released uint64
	// available is how many servers of the type are free.
	available int32
}

// outdated returns whether a refusal for the reason may be different by now.
func (d dependencies) outdated(reason string, now dependencies) bool {
	switch reason {
	case v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonNotAllowed:
		return false
	case v1alpha1.ReasonNoCapacity:
		return now.available > d.available || now.released != d.released
	}
	return now.released != d.released
}

// record a refusal to a NodeClaim whose launch began at that time, and return whether a backoff begins.
func (r *refusals) record(key poolType, on dependencies, began, now time.Time, condition metav1.Condition) (backoff, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.backoffs, func(_ poolType, b backoff) bool { return now.Sub(b.until) > maxBackoff })
	before, found := r.backoffs[key]
	found = found && before.on.versions == on.versions
	if found && (now.Before(before.until) || began.Before(before.since)) {
		return before, false // Core made the NodeClaim before it knew.
	}
	delay := firstBackoff
	switch condition.Reason {
	case v1alpha1.ReasonNoCapacity, v1alpha1.ReasonNoMatchingType, v1alpha1.ReasonQuotaExceeded:
		delay = firstRetry
	}
	if found {
		delay = min(max(2*before.until.Sub(before.since), delay), maxBackoff)
	}
	after := backoff{since: now, until: now.Add(delay), on: on, reason: condition.Reason, message: condition.Message}
	if r.backoffs == nil {
		r.backoffs = map[poolType]backoff{}
	}
	r.backoffs[key] = after
	return after, true
}

// find the backoff of a type for a NodePool. It is gone once what it depends on has changed.
func (r *refusals) find(key poolType, current dependencies, now time.Time) (backoff, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, found := r.backoffs[key]
	if !found || !now.Before(b.until) {
		return backoff{}, false
	}
	if b.on.versions != current.versions {
		delete(r.backoffs, key)
		return backoff{}, false
	}
	if b.on.outdated(b.reason, current) {
		b.until = now // the next refusal still makes it longer
		r.backoffs[key] = b
		return backoff{}, false
	}
	if current.available < b.on.available {
		b.on.available = current.available
		r.backoffs[key] = b
	}
	return b, true
}

// backingOff returns the types with a backoff for a NodePool, until any of them may be tried again. Nil if there are none.
func (r *refusals) backingOff(nodePool string, now time.Time) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var result map[string]time.Time
	for key, b := range r.backoffs {
		if key.nodePool != nodePool || !now.Before(b.until) {
			continue
		}
		if result == nil {
			result = map[string]time.Time{}
		}
		result[key.nodeType] = b.until
	}
	return result
}

// any returns whether there is any backoff.
func (r *refusals) any(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.backoffs {
		if now.Before(b.until) {
			return true
		}
	}
	return false
}

func (r *refusals) recordNoServer(nodePool string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noServer == nil {
		r.noServer = map[string]time.Time{}
	}
	r.noServer[nodePool] = now
}

// forget what was refused to a NodePool that has got a server of the type.
func (r *refusals) forget(key poolType) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.noServer, key.nodePool)
	delete(r.backoffs, key)
}

func (r *refusals) lately(nodePool string, clk clock.PassiveClock) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, found := r.noServer[nodePool]
	return found && clk.Since(since) < refusalMemory
}

// RefusedLately returns whether a NodeClaim of the NodePool was refused within the last five minutes for lack of a server, and
// none has got one since.
func (c *CloudProvider) RefusedLately(nodePool string) bool {
	return c.refusals.lately(nodePool, c.clock)
}
