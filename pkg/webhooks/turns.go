// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"slices"
	"sync"
)

// turns gives places to requests, by turns of their sources. A source that sends many requests delays only its own.
type turns struct {
	// free counts the free places; limit is how many requests may wait.
	free, limit int

	lock    sync.Mutex
	waiting int
	// queues holds the waiting requests of each source. order holds the sources; the first one is next.
	queues map[string][]chan bool
	order  []string
}

// take waits for a place. It reports false if the context ends first, or if a full line drops the request.
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

// line takes a place at once, or puts the request into the line. A full line drops the last request of the source with
// the most requests.
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

// give passes the place to the next request, and puts its source behind the other sources.
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

// remove takes a request out of the line. The caller must hold the lock.
func (t *turns) remove(source string, index int) {
	t.waiting--
	if t.queues[source] = slices.Delete(t.queues[source], index, index+1); len(t.queues[source]) == 0 {
		delete(t.queues, source)
		t.order = slices.DeleteFunc(t.order, func(other string) bool { return other == source })
	}
}
