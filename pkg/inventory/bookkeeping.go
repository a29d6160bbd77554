// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"sync"
)

// put adds a host that is not known yet. The lock must be held, here and in what follows.
func (i *Inventory) put(h *host, changed changed) {
	i.hosts[h.key] = h
	if i.labelled != nil {
		i.index(h)
	}
	if h.assumedBy != "" {
		i.assumed[h.assumedBy] = h
	}
	i.use(h.usedAs(), 1, changed)
	for name, t := range i.types {
		if t.profile.selects(h) {
			t.add(h, i.topology)
			changed.add(name)
		}
	}
	h.reshare(changed)
}

// take removes a known host. The host keeps the Machine that it was assumed for.
func (i *Inventory) take(h *host, changed changed) {
	for name := range h.buckets {
		i.types[name].remove(h)
		changed.add(name)
	}
	i.use(h.usedAs(), -1, changed)
	if h.assumedBy != "" {
		delete(i.assumed, h.assumedBy)
	}
	if i.labelled != nil {
		i.unindex(h)
	}
	delete(i.hosts, h.key)
}

// change changes a host in place, where it stays in its buckets.
func (i *Inventory) change(h *host, changed changed, mutate func()) {
	counts, used, message := h.counts(), h.usedAs(), h.eligibility.Message
	mutate()
	if now := h.usedAs(); now != used {
		i.use(used, -1, changed)
		i.use(now, 1, changed)
	}
	if h.eligibility.Message != message {
		for name := range h.buckets {
			changed.add(name) // the message of a Machine that is pinned to the host has the reason
		}
	}
	now := h.counts()
	if now == counts {
		return
	}
	for name, b := range h.buckets {
		old, new := h.as(name, counts), h.as(name, now)
		if old == new {
			continue
		}
		i.types[name].count(h, b, old, new)
		changed.add(name)
	}
}

// release ends a host's assumption, inside a change.
func (i *Inventory) release(h *host) {
	if h.assumedBy != "" {
		delete(i.assumed, h.assumedBy)
	}
	h.assumedBy, h.assumedAs = "", ""
}

// drop removes a type. Hosts that were claimed as it are still counted, for the case that it comes back.
func (i *Inventory) drop(t *nodeType, changed changed) {
	for _, h := range i.hosts {
		if _, member := h.buckets[t.profile.Name]; member {
			delete(h.buckets, t.profile.Name)
			delete(h.lacks, t.profile.Name)
			h.reshare(changed)
		}
	}
	i.byCost = remove(i.byCost, t, byCost)
	delete(i.types, t.profile.Name)
}

// use counts one host more or less as claimed as a type.
func (i *Inventory) use(name string, difference int32, changed changed) {
	if name == "" {
		return
	}
	changed.add(name)
	i.used[name] += difference
	if i.used[name] == 0 {
		delete(i.used, name)
	}
}

// gate is closed at first and opens once.
type gate struct {
	once *sync.Once
	done chan struct{}
}

func newGate() gate { return gate{once: &sync.Once{}, done: make(chan struct{})} }

// unlock opens the gate, and returns whether this call did.
func (g gate) unlock() (opened bool) {
	g.once.Do(func() {
		close(g.done)
		opened = true
	})
	return opened
}

func (g gate) open() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

func (g gate) wait(ctx context.Context) error {
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
