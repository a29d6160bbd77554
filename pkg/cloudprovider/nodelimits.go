// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"sync"
)

// nodeLimits counts the Machines of the NodePools whose nodes are limited, so that no two calls take the last place. A
// count goes by the cache and by what this process has made that the cache does not show yet: to ask the API server for
// every Machine of a pool before each new one made a burst of a hundred take a minute. The API server is asked twice:
// once for every pool, because an earlier leader may have made what the cache does not show yet, and before anything is
// refused, because the cache may show what has gone.
type nodeLimits struct {
	mu    sync.Mutex
	pools map[string]*poolPlaces
}

// poolPlaces are the places in a pool that are taken by Machines which the cache did not show when it was last looked at.
type poolPlaces struct {
	// taken has the names. The value is true while the Machine is being made.
	taken map[string]bool
}

// machineLister returns the names of the Machines of a pool: those in the cache, or those on the API server.
type machineLister func(ctx context.Context, live bool) (map[string]bool, error)

// take takes a place for the Machine of that name if fewer than limit others have one, and returns how many have. Who has
// taken a place must call settle.
func (l *nodeLimits) take(ctx context.Context, list machineLister, pool, name string, limit int64) (others int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	places, known := l.pools[pool]
	if !known {
		places = &poolPlaces{taken: map[string]bool{}}
	}
	shown, err := list(ctx, false)
	if err != nil {
		return 0, err
	}
	if others = places.seen(shown, name); !known || others >= limit {
		if shown, err = list(ctx, true); err != nil {
			return 0, err
		}
		others = places.verified(shown, name)
	}
	if !known {
		if l.pools == nil {
			l.pools = map[string]*poolPlaces{}
		}
		l.pools[pool] = places
	}
	if others < limit {
		places.taken[name] = true
	}
	return others, nil
}

// settle is called when it is known what became of a Machine that has a place. refused means that there is none.
// Otherwise it keeps the place, made or not, until the cache shows it or the API server does not.
func (l *nodeLimits) settle(pool, name string, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	places := l.pools[pool]
	if refused {
		delete(places.taken, name)
		return
	}
	if _, kept := places.taken[name]; kept {
		places.taken[name] = false
	}
}

// seen counts the Machines other than that of the name. What the cache shows needs no place any more.
func (p *poolPlaces) seen(cached map[string]bool, name string) int64 {
	for taken, making := range p.taken {
		if cached[taken] && !making {
			delete(p.taken, taken)
		}
	}
	return p.count(cached, name)
}

// verified counts the same by what is on the API server, and keeps places for all of that: the cache may not show it.
func (p *poolPlaces) verified(existing map[string]bool, name string) int64 {
	for taken, making := range p.taken {
		if !existing[taken] && !making {
			delete(p.taken, taken)
		}
	}
	count := p.count(existing, name)
	for one := range existing {
		if _, taken := p.taken[one]; !taken {
			p.taken[one] = false
		}
	}
	return count
}

func (p *poolPlaces) count(machines map[string]bool, name string) (count int64) {
	for one := range machines {
		if one != name {
			count++
		}
	}
	for one := range p.taken {
		if one != name && !machines[one] {
			count++
		}
	}
	return count
}
