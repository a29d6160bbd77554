// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduling is the queue of Machines that wait for a server, an address, a quota or the correction of an
// object. It works like the queue of kube-scheduler. A Machine is active, or it is unschedulable and has the events
// that could make it schedulable. An event makes the Machines active that it could help. Pop returns active Machines by
// age within a namespace, and takes the namespaces in turn.
package scheduling

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Kind of an event.
type Kind string

// Kinds of events.
const (
	// HostChanged: a server or a NodeType has come, gone or changed.
	HostChanged Kind = "HostChanged"
	// ChoiceChanged: a server or a NodeType changed a while ago. It wakes Machines whose server could not be chosen.
	ChoiceChanged Kind = "ChoiceChanged"
	// UsageShrank: a tenant has fewer servers. Of is its namespace.
	UsageShrank Kind = "UsageShrank"
	// AddressFreed: an address can be taken again. Of is the network.
	AddressFreed Kind = "AddressFreed"
	// ClaimsAllowed: a namespace that has claimed too many servers without using them may claim again. Of is the namespace.
	ClaimsAllowed Kind = "ClaimsAllowed"
	// ObjectChanged: an object that Machines refer to has come, gone or changed.
	ObjectChanged Kind = "ObjectChanged"
)

// Event is a kind of change in the cluster. As a hint of an unschedulable Machine it is a change that could make the
// Machine schedulable.
type Event struct {
	Kind Kind
	// The subject of the event, depending on its kind.
	Of string
}

// Machine is a Machine in the queue.
type Machine[T any] struct {
	Key types.NamespacedName
	// Created is when the Machine was created: the oldest comes first.
	Created time.Time
	// HasServer is true for a Machine that has a server and waits for something else. Pop returns these Machines first.
	HasServer bool
	// Hints are the events that could make the Machine schedulable.
	Hints []Event
	// Value is the caller's own data, from which it decides.
	Value T
	// MovedBy is the event that made the Machine active. Among several events, ObjectChanged wins.
	MovedBy Event
	// Moved is when the Machine was made active.
	Moved time.Time

	index int // in the heap of active ones; -1 if it is unschedulable
}

// Before reports whether a is popped before b, within one namespace: Machines with a server first, then by age, then by
// name.
func (a *Machine[T]) Before(b *Machine[T]) bool {
	if a.HasServer != b.HasServer {
		return a.HasServer
	}
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Key.Namespace, b.Key.Namespace), strings.Compare(a.Key.Name, b.Key.Name)) < 0
}

// Version counts events.
type Version uint64

// Queue holds the waiting Machines. It is safe for concurrent use.
type Queue[T any] struct {
	clock    clock.PassiveClock
	lock     sync.Mutex
	machines map[types.NamespacedName]*Machine[T]
	// active holds the active Machines by namespace. It has no empty heaps.
	active map[string]*activeHeap[T]
	// turns counts the turns of each namespace since there was last no active Machine; turn is the count at the latest
	// turn. A namespace that joins later starts at turn. Otherwise it would catch up on turns that it did not need.
	turns map[string]uint64
	turn  uint64
	// served is the serial number of the last server that a Machine of the namespace was given.
	served  map[string]uint64
	serving uint64
	version Version
	// last is the version after each event. It tells whether a Machine missed an event while it was being decided on.
	last map[Event]Version
}

// NewQueue returns an empty queue.
func NewQueue[T any](clock clock.PassiveClock) *Queue[T] {
	return &Queue[T]{clock: clock, machines: map[types.NamespacedName]*Machine[T]{}, active: map[string]*activeHeap[T]{},
		turns: map[string]uint64{}, served: map[string]uint64{}, last: map[Event]Version{}}
}

// Version returns the version to pass to Park. Read it before you decide on a Machine.
func (q *Queue[T]) Version() Version {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.version
}

// Park adds a Machine as unschedulable, or replaces it. The Machine is active at once if one of its hints came true
// after the version since, while the Machine was being decided on.
func (q *Queue[T]) Park(machine Machine[T], since Version) {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.remove(machine.Key)
	waiting := &machine
	waiting.index = -1
	q.machines[waiting.Key] = waiting
	for _, hint := range waiting.Hints {
		if q.last[hint] > since {
			q.activate(waiting, hint)
		}
	}
}

// Delete removes a Machine.
func (q *Queue[T]) Delete(key types.NamespacedName) {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.remove(key)
}

// Take removes and returns an unschedulable Machine. It reports false if there is none, or if an event made it active.
func (q *Queue[T]) Take(key types.NamespacedName) (machine Machine[T], found bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	waiting, found := q.machines[key]
	if !found || waiting.index >= 0 {
		return Machine[T]{}, false
	}
	q.remove(key)
	return *waiting, true
}

// Value returns the value of a Machine in the queue, and reports false if there is none.
func (q *Queue[T]) Value(key types.NamespacedName) (value T, found bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	waiting, found := q.machines[key]
	if found {
		value = waiting.Value
	}
	return value, found
}

// Move makes all unschedulable Machines active that have the event among their hints.
func (q *Queue[T]) Move(event Event) {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.version++
	q.last[event] = q.version
	for _, waiting := range q.machines {
		if slices.Contains(waiting.Hints, event) {
			q.activate(waiting, event)
		}
	}
}

// Pop removes and returns the first active Machine, and the version to Park it with. It reports false if none is
// active. Machines that have a server come first. The others come one from each namespace in turn, starting with the
// namespace that was given a server longest ago. So the many Machines of one namespace do not hold up another.
func (q *Queue[T]) Pop() (machine Machine[T], version Version, found bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	var first *Machine[T]
	for _, active := range q.active {
		if waiting := active.machines[0]; first == nil || q.before(waiting, first) {
			first = waiting
		}
	}
	if first == nil {
		clear(q.turns)
		q.turn = 0
		return Machine[T]{}, 0, false
	}
	namespace := first.Key.Namespace
	q.turn = q.turns[namespace]
	q.turns[namespace]++
	q.remove(first.Key)
	return *first, q.version, true
}

// before reports whether a Machine is popped before a Machine of another namespace.
func (q *Queue[T]) before(a, b *Machine[T]) bool {
	if a.HasServer != b.HasServer {
		return a.HasServer
	}
	x, y := a.Key.Namespace, b.Key.Namespace
	if turns := cmp.Or(cmp.Compare(q.turns[x], q.turns[y]), cmp.Compare(q.served[x], q.served[y])); turns != 0 {
		return turns < 0
	}
	return a.Before(b)
}

// Served records that a Machine of the namespace was given a server.
func (q *Queue[T]) Served(namespace string) {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.serving++
	q.served[namespace] = q.serving
}

// Keys returns the keys of all Machines in the queue, in no order.
func (q *Queue[T]) Keys() []types.NamespacedName {
	q.lock.Lock()
	defer q.lock.Unlock()
	return slices.Collect(maps.Keys(q.machines))
}

func (q *Queue[T]) activate(waiting *Machine[T], event Event) {
	if waiting.index < 0 {
		waiting.MovedBy, waiting.Moved = event, q.clock.Now()
		namespace := waiting.Key.Namespace
		if q.active[namespace] == nil {
			q.active[namespace] = &activeHeap[T]{}
			q.turns[namespace] = max(q.turns[namespace], q.turn)
		}
		heap.Push(q.active[namespace], waiting)
	} else if event.Kind == ObjectChanged {
		waiting.MovedBy = event
	}
}

func (q *Queue[T]) remove(key types.NamespacedName) {
	waiting, found := q.machines[key]
	if !found {
		return
	}
	delete(q.machines, key)
	if waiting.index < 0 {
		return
	}
	active := q.active[key.Namespace]
	heap.Remove(active, waiting.index)
	if active.Len() == 0 {
		delete(q.active, key.Namespace)
	}
}

// activeHeap implements heap.Interface.
type activeHeap[T any] struct{ machines []*Machine[T] }

func (h *activeHeap[T]) Len() int           { return len(h.machines) }
func (h *activeHeap[T]) Less(i, j int) bool { return h.machines[i].Before(h.machines[j]) }

func (h *activeHeap[T]) Swap(i, j int) {
	h.machines[i], h.machines[j] = h.machines[j], h.machines[i]
	h.machines[i].index, h.machines[j].index = i, j
}

func (h *activeHeap[T]) Push(added any) {
	waiting := added.(*Machine[T])
	waiting.index = len(h.machines)
	h.machines = append(h.machines, waiting)
}

func (h *activeHeap[T]) Pop() any {
	last := len(h.machines) - 1
	waiting := h.machines[last]
	h.machines[last], h.machines = nil, h.machines[:last]
	waiting.index = -1
	return waiting
}
