// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"slices"
	"sync"
)

// turns gives places to requests, by turns of their sources: a source that sends many requests makes its own wait, and not those of others.
type turns struct {
	// free places, and how many requests wait at most.
	free, limit int

	lock    sync.Mutex
	waiting int
	// queues has the requests of each source that wait, and order the sources. The first one is next.
	queues map[string][]chan bool
	order  []string
}

// take waits for a place. It returns false if there is none before the context ends, or if others that wait come first.
func (t *turns) take(ctx context.Context, source string) bool {
	turn, now := t.line(source)
	if now {
		return true
	}
	select {
	case has := <-turn:
		return has
	case <-ctx.Done():
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if index := slices.Index(t.queues[source], turn); index >= 0 {
		t.remove(source, index)
		return false
	}
	return <-turn // it was decided in the same moment
}

// line takes a place at once, or puts the request into the line. If that is full, the last one of the source with most requests goes.
func (t *turns) line(source string) (turn chan bool, now bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.free > 0 {
		t.free--
		return nil, true
	}
	turn = make(chan bool, 1)
	if t.queues == nil {
		t.queues = map[string][]chan bool{}
	}
	if len(t.queues[source]) == 0 {
		t.order = append(t.order, source)
	}
	t.queues[source] = append(t.queues[source], turn)
	if t.waiting++; t.waiting > t.limit {
		most := slices.MaxFunc(t.order, func(a, b string) int { return len(t.queues[a]) - len(t.queues[b]) })
		last := len(t.queues[most]) - 1
		t.queues[most][last] <- false
		t.remove(most, last)
	}
	return turn, false
}

// give gives the place to the next request, and the source its next turn after those of the others.
func (t *turns) give() {
	t.lock.Lock()
	defer t.lock.Unlock()
	if len(t.order) == 0 {
		t.free++
		return
	}
	source := t.order[0]
	t.queues[source][0] <- true
	if t.remove(source, 0); len(t.queues[source]) > 0 {
		t.order = append(t.order[1:], source)
	}
}

// remove takes a request out of the line. The lock must be held.
func (t *turns) remove(source string, index int) {
	t.waiting--
	if t.queues[source] = slices.Delete(t.queues[source], index, index+1); len(t.queues[source]) == 0 {
		delete(t.queues, source)
		t.order = slices.DeleteFunc(t.order, func(other string) bool { return other == source })
	}
}
