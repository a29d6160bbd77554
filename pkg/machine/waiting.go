// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/hosts"
)

// waiting are the Machines that wait for something which no watch maps to them. They stand in lines, and what a line
// waits for wakes as many of it as it can serve, the longest waiting first: were all of them woken by every server that
// moves, a thousand Machines would be looked at half a million times before each has one.
//
// No Machine may be forgotten. So whoever is woken and does not take what it was woken for wakes the next in its line
// (see leave), and what happens while a Machine is being looked at, too late for it, wakes it once more (see missed).
type waiting struct {
	lock     sync.Mutex
	machines map[types.NamespacedName]*waiter
	// asking are the Machines that are being looked at; no more than there are workers.
	asking map[*waiter]struct{}
	lines  map[wish]*line
	// choosers are those of whom another choice of a server could make a difference, and who are not due already.
	choosers map[*waiter]struct{}
	queue    workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// waiter is a Machine that waits or is being looked at.
type waiter struct {
	key types.NamespacedName
	// since is when it was created. One that holds a server comes before all that do not.
	since time.Time
	holds bool
	line  *line
	// woken is true from the wake until it is looked at.
	woken bool
	// answers is the wish that it was woken for, while it is being looked at.
	answers wish
	// missed are the wishes that came true while it was being looked at, by what tells whether they are its own.
	missed []func(wish) bool
	// changed is true when the inventory has changed while it was being looked at.
	changed bool
}

// line are the Machines with the same wish.
type line struct {
	wish wish
	// idle are those that have not been woken, in order. count is all of them.
	idle  *btree.BTreeG[*waiter]
	count int
}

const lineDegree = 16

func newWaiting() *waiting {
	return &waiting{
		machines: map[types.NamespacedName]*waiter{}, asking: map[*waiter]struct{}{}, lines: map[wish]*line{}, choosers: map[*waiter]struct{}{},
	}
}

// start makes wakes use the queue of a controller. It is a source of that controller.
func (w *waiting) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.queue = queue
	return nil
}

// begin is called before a Machine asks for anything: what comes true between the question and the answer must wake it.
func (w *waiting) begin(key types.NamespacedName) *waiter {
	w.lock.Lock()
	defer w.lock.Unlock()
	one, known := w.machines[key]
	if !known {
		one = &waiter{key: key}
		w.machines[key] = one
	}
	if one.answers = (wish{}); one.woken {
		one.answers = one.line.wish
	}
	w.leaveLine(one)
	one.missed, one.changed = nil, false
	w.asking[one] = struct{}{}
	return one
}

// end is called when a Machine has been looked at, with what it waits for now. took is true when it has a server or
// needs none any more.
func (w *waiting) end(one *waiter, since time.Time, wants wish, took bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	delete(w.asking, one)
	w.pass(one, wants, took)
	if wants.need == nothing {
		delete(w.machines, one.key)
		return
	}
	one.since, one.holds = since, took
	w.enterLine(one, wants)
	for _, relevant := range one.missed {
		if relevant(wants) {
			w.wake(one)
			break
		}
	}
	one.missed = nil
	if one.changed && !one.woken {
		w.askAgain(one)
	}
}

// pass wakes the next in the line that a Machine was woken in, unless it has taken the only thing that there was, or
// has found that there is nothing for any of that line.
func (w *waiting) pass(one *waiter, wants wish, took bool) {
	from, found := w.lines[one.answers]
	if !found || one.answers == wants || (took && one.answers.need == aServer) {
		return
	}
	from.idle.AscendGreaterOrEqual(one, func(next *waiter) bool {
		if next == one {
			return true
		}
		w.wake(next)
		return false
	})
}

func (w *waiting) enterLine(one *waiter, wants wish) {
	l, known := w.lines[wants]
	if !known {
		l = &line{wish: wants, idle: btree.NewG(lineDegree, earlier)}
		w.lines[wants] = l
	}
	l.count++
	l.idle.ReplaceOrInsert(one)
	one.line, one.woken = l, false
	if wants.anotherChoice {
		w.choosers[one] = struct{}{}
	}
}

func (w *waiting) leaveLine(one *waiter) {
	if one.line == nil {
		return
	}
	one.line.idle.Delete(one)
	if one.line.count--; one.line.count == 0 {
		delete(w.lines, one.line.wish)
	}
	delete(w.choosers, one)
	one.line, one.woken = nil, false
}

// wake puts a Machine into the queue. The lock must be held, here and in what follows.
func (w *waiting) wake(one *waiter) {
	if w.queue == nil || one.woken {
		return
	}
	one.line.idle.Delete(one)
	one.woken = true
	priority := withoutServer
	if one.holds {
		priority = withServer
	}
	enqueue(w.queue, reconcile.Request{NamespacedName: one.key}, priority)
}

// wakeFirst wakes so many Machines of a line, the longest waiting first.
func (w *waiting) wakeFirst(l *line, count int) {
	for range count {
		one, found := l.idle.Min()
		if !found || w.queue == nil {
			return
		}
		w.wake(one)
	}
}

// serve wakes in each line so many Machines as its wish has come true for.
func (w *waiting) serve(count func(wish) int) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for one := range w.asking {
		one.missed = append(one.missed, func(wants wish) bool { return count(wants) > 0 })
	}
	for wants, l := range w.lines {
		w.wakeFirst(l, count(wants))
	}
}

// everybody is more than there are in any line.
const everybody = int(^uint(0) >> 1)

// wakeAll wakes all Machines: an object that any of them may wait for has been made or changed.
func (w *waiting) wakeAll() { w.serve(func(wish) int { return everybody }) }

// gained wakes those who can be served by what the inventory has gained.
func (w *waiting) gained(gain hosts.Gain) {
	w.serve(func(wants wish) int { return wants.servedBy(gain) })
}

// choiceDelay is how long a Machine sleeps to which another server than it would have got may make a difference, after
// the inventory has changed. A fleet in motion must not wake it for every server that moves.
const choiceDelay = 5 * time.Second

// choose lets those ask again, in a while, who could not have the server that they would have got.
func (w *waiting) choose() {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.queue == nil {
		return
	}
	for one := range w.asking {
		one.changed = true
	}
	for one := range w.choosers {
		w.askAgain(one)
	}
}

// askAgain lets a Machine ask again in a while, if another server may make a difference to it.
func (w *waiting) askAgain(one *waiter) {
	if _, found := w.choosers[one]; found && w.queue != nil {
		delete(w.choosers, one)
		w.queue.AddAfter(reconcile.Request{NamespacedName: one.key}, choiceDelay)
	}
}

// waiters are the Machines that wait.
func (w *waiting) waiters() []types.NamespacedName {
	w.lock.Lock()
	defer w.lock.Unlock()
	var keys []types.NamespacedName
	for key, one := range w.machines {
		if one.line != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

func earlier(a, b *waiter) bool {
	switch {
	case a.holds != b.holds:
		return a.holds
	case !a.since.Equal(b.since):
		return a.since.Before(b.since)
	}
	return strings.Compare(a.key.String(), b.key.String()) < 0
}
