// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"maps"
	"slices"
)

// Gain is what a change of the inventory may have made possible for requests that got no host before it.
type Gain struct {
	// Types are how many more requests a type can serve now, by name. It may be too many, never too few.
	Types map[string]int
	// Servers are the names of hosts that have come, gone or changed, sorted: for whoever is pinned to one.
	Servers []string
	// Room are the types, sorted, of which maxCapacity does not keep servers any more: for whoever is pinned to one of
	// those, which itself has not changed.
	Room []string
	// Profiles is true when a type has come, gone or changed. Then every request may have another answer.
	Profiles bool
}

// touched collects what a change concerns.
type touched struct {
	types, servers map[string]struct{}
	// gained counts, by type, the hosts that can be claimed now and could not before; room those that maxCapacity alone
	// kept from being claimed.
	gained, room map[string]int
	profiles     bool
}

func newTouched() *touched {
	return &touched{types: map[string]struct{}{}, servers: map[string]struct{}{}, gained: map[string]int{}, room: map[string]int{}}
}

func touchedProfile(name string) *touched {
	touched := newTouched()
	touched.add(name)
	touched.profiles = true
	return touched
}

func (t *touched) add(name string) {
	if name != "" {
		t.types[name] = struct{}{}
	}
}

func (t *touched) server(h *host)       { t.servers[h.key.Name] = struct{}{} }
func (t *touched) gain(name string)     { t.gained[name]++ }
func (t *touched) makeRoom(name string) { t.room[name]++ }

func (t *touched) asGain() Gain {
	types := maps.Clone(t.gained)
	for name, count := range t.room {
		types[name] = max(types[name], count) // most often it is the same server
	}
	return Gain{Types: types, Servers: slices.Sorted(maps.Keys(t.servers)), Room: slices.Sorted(maps.Keys(t.room)), Profiles: t.profiles}
}

// tell tells the listeners. The lock must not be held: they may ask for summaries.
func (i *Inventory) tell(touched *touched) {
	if len(touched.servers) > 0 || len(touched.room) > 0 || touched.profiles {
		i.notifyGain(touched.asGain())
	}
	if len(touched.types) > 0 {
		i.notify(slices.Sorted(maps.Keys(touched.types)))
	}
}

func (i *Inventory) notify(names []string) {
	i.listening.RLock()
	defer i.listening.RUnlock()
	for _, listener := range i.listeners {
		listener(names)
	}
}

func (i *Inventory) notifyGain(gain Gain) {
	i.listening.RLock()
	defer i.listening.RUnlock()
	for _, listener := range i.gainListeners {
		listener(gain)
	}
}
