// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpools

import (
	"sync"
	"time"
)

const (
	firstDelay = time.Second
	lastDelay  = time.Minute
)

// backoff limits how often NodeClaims are created for a NodePool. If servers appeared to be free and could not be claimed,
// for whatever reason, the next NodeClaims follow after a second, two, four, and so on up to a minute.
type backoff struct {
	mu    sync.Mutex
	pools map[string]attempt
}

// attempt is when NodeClaims were created last, and how long none are created after that.
type attempt struct {
	at    time.Time
	delay time.Duration
}

// next returns how long to wait. If that is zero, NodeClaims are created now.
func (b *backoff) next(pool string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, found := b.pools[pool]
	if found {
		if since := now.Sub(last.at); since < last.delay {
			return last.delay - since
		}
	}
	current := attempt{at: now, delay: firstDelay}
	if found && now.Sub(last.at) < 2*last.delay {
		current.delay = min(2*last.delay, lastDelay)
	}
	if b.pools == nil {
		b.pools = map[string]attempt{}
	}
	b.pools[pool] = current
	return 0
}

// forget the attempts for a NodePool.
func (b *backoff) forget(pool string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pools, pool)
}
