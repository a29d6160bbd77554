// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"sync"
)

// nodeLimits counts the Machines of the NodePools with a limit on nodes, so that concurrent calls do not exceed it together.
// It counts the Machines in the cache and those that this process has created and that are not in the cache yet: listing
// them live before each new one made a burst of a hundred take a minute. They are listed live once for every NodePool,
// because an earlier leader may have created some that are not in the cache yet, and before anything is refused, because the
// cache may still have some that are gone.
type nodeLimits struct {
	mu    sync.Mutex
	pools map[string]*assumedMachines
}

// assumedMachines are Machines of a NodePool that were not in the cache when it was last read.
type assumedMachines struct {
	// mu is held during live lists, so it is one for each pool: a slow list would hold up the other pools.
	mu sync.Mutex
	// listed is true once the Machines have been listed live.
	listed bool
	// machines has their names. The value is true while the Machine is being created.
	machines map[string]bool
}

// machineLister returns the names of the Machines of a pool: those in the cache, or those on the API server.
type machineLister func(ctx context.Context, live bool) (map[string]bool, error)

// assume counts the Machine of that name if there are fewer than limit others, and returns how many others there are. The
// caller must call finish afterwards.
func (l *nodeLimits) assume(ctx context.Context, list machineLister, pool, name string, limit int64) (others int64, err error) {
	assumed := l.of(pool)
	assumed.mu.Lock()
	defer assumed.mu.Unlock()
	shown, err := list(ctx, false)
	if err != nil {
		return 0, err
	}
	if others = assumed.countCached(shown, name); !assumed.listed || others >= limit {
		if shown, err = list(ctx, true); err != nil {
			return 0, err
		}
		others, assumed.listed = assumed.countLive(shown, name), true
	}
	if others < limit {
		assumed.machines[name] = true
	}
	return others, nil
}

// finish is called after the attempt to create a Machine that was assumed. refused means that it was denied. Otherwise it
// is counted, created or not, until it is in the cache or not on the API server.
func (l *nodeLimits) finish(pool, name string, refused bool) {
	assumed := l.of(pool)
	assumed.mu.Lock()
	defer assumed.mu.Unlock()
	if refused {
		delete(assumed.machines, name)
		return
	}
	if _, kept := assumed.machines[name]; kept {
		assumed.machines[name] = false
	}
}

func (l *nodeLimits) of(pool string) *assumedMachines {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pools == nil {
		l.pools = map[string]*assumedMachines{}
	}
	if l.pools[pool] == nil {
		l.pools[pool] = &assumedMachines{machines: map[string]bool{}}
	}
	return l.pools[pool]
}

// countCached counts the Machines other than that of the name. Those in the cache need not be assumed any more.
func (p *assumedMachines) countCached(cached map[string]bool, name string) int64 {
	for taken, making := range p.machines {
		if cached[taken] && !making {
			delete(p.machines, taken)
		}
	}
	return p.count(cached, name)
}

// countLive counts the same with what is on the API server, and assumes all of that: it may not be in the cache yet.
func (p *assumedMachines) countLive(existing map[string]bool, name string) int64 {
	for taken, making := range p.machines {
		if !existing[taken] && !making {
			delete(p.machines, taken)
		}
	}
	count := p.count(existing, name)
	for one := range existing {
		if _, taken := p.machines[one]; !taken {
			p.machines[one] = false
		}
	}
	return count
}

func (p *assumedMachines) count(machines map[string]bool, name string) (count int64) {
	for one := range machines {
		if one != name {
			count++
		}
	}
	for one := range p.machines {
		if one != name && !machines[one] {
			count++
		}
	}
	return count
}
