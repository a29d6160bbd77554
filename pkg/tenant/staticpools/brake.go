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

// brake bounds how often NodeClaims are made for a pool. Servers that looked free and were not had, for whatever reason,
// are asked for again after a second, two, four, and so on up to a minute.
type brake struct {
	mu    sync.Mutex
	pools map[string]ask
}

// ask is when NodeClaims were made last, and how long none are made since.
type ask struct {
	at    time.Time
	delay time.Duration
}

// wait returns how long to wait, and if that is not at all, takes it that NodeClaims are made now.
func (b *brake) wait(pool string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, found := b.pools[pool]
	if found {
		if since := now.Sub(last.at); since < last.delay {
			return last.delay - since
		}
	}
	next := ask{at: now, delay: firstDelay}
	if found && now.Sub(last.at) < 2*last.delay {
		next.delay = min(2*last.delay, lastDelay)
	}
	if b.pools == nil {
		b.pools = map[string]ask{}
	}
	b.pools[pool] = next
	return 0
}

// forget what was asked for a pool.
func (b *brake) forget(pool string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pools, pool)
}
