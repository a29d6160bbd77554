// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetype

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// Each provider watches all NodeTypes, so every tenant receives each write of a NodeType. These are the bytes per
// second that all tenants together receive for all NodeTypes, by urgency. Their sum bounds the cost of any fleet.
const (
	countBytesPerSecond = 5 << 18
	turnBytesPerSecond  = 2 << 18
)

// urgency is why the status of a NodeType must be written.
type urgency int

const (
	// counts: other numbers. A provider subtracts its own tenant's claims since then, and the manager refuses servers
	// that are not there.
	counts urgency = iota
	// turns: the first server became free, and pods may wait for it, or none is left, and NodeClaims are refused.
	turns
	// changes: the spec, or whether it is valid. It is written at once, because only a person changes it.
	changes
)

func urgencyOf(nodeType *v1alpha1.NodeType, summary inventory.Summary, invalid *inventory.InvalidType) urgency {
	available, reason := summary.Capacity.Available, v1alpha1.ReasonSynced
	if invalid != nil {
		available, reason = 0, invalid.Reason
	}
	synced := meta.FindStatusCondition(nodeType.Status.Conditions, v1alpha1.ConditionSynced)
	switch {
	case nodeType.Status.ObservedGeneration != nodeType.Generation, synced == nil, synced.Reason != reason:
		return changes
	case (available == 0) != (nodeType.Status.Capacity.Available == 0):
		return turns
	}
	return counts
}

// pace decides when statuses may be written. Waiting types are written in the order in which they began to wait, and
// the first one after a pause at once. It is not a rate.Limiter: that refuses amounts above its burst, and grants a
// whole burst after a pause.
type pace struct {
	lanes [changes]lane
	types map[string]*paced
}

// lane are the writes of one urgency. Each may begin once the earlier ones have taken their time.
type lane struct {
	bytesPerSecond int64
	free           time.Time
}

// paced is the pace of one type.
type paced struct {
	// sent is how many bytes the last write sent to all tenants together.
	sent     int64
	bookings [changes]booking
}

// booking is when a type may be written, zero if it does not wait, and how many bytes it takes from the lane.
type booking struct {
	due   time.Time
	bytes int64
}

func newPace() pace {
	return pace{types: map[string]*paced{}, lanes: [changes]lane{
		counts: {bytesPerSecond: countBytesPerSecond}, turns: {bytesPerSecond: turnBytesPerSecond},
	}}
}

// waits returns how long a type must still wait. It returns 0 if the type has not begun to wait.
func (p *pace) waits(name string, urgency urgency, now time.Time) time.Duration {
	if urgency == changes {
		return 0
	}
	bookings := p.get(name).bookings
	due := bookings[urgency].due
	if other := bookings[counts].due; !other.IsZero() && other.Before(due) {
		due = other
	}
	return max(0, due.Sub(now))
}

// book makes a type wait for its turn, if it does not wait already. estimate is in bytes for all tenants.
func (p *pace) book(name string, urgency urgency, estimate int64, now time.Time) {
	if urgency == changes {
		return
	}
	known, lane := p.get(name), &p.lanes[urgency]
	if known.bookings[urgency].due.IsZero() {
		known.bookings[urgency] = booking{due: later(lane.free, now), bytes: cmp.Or(known.sent, estimate)}
		lane.take(known.bookings[urgency].bytes, now)
	}
}

// wrote ends the wait of a type after a write that sent the given bytes to all tenants together.
func (p *pace) wrote(name string, urgency urgency, sent int64, now time.Time) {
	if urgency == changes {
		urgency = counts // counts have more bytes per second
	}
	known := p.get(name)
	p.lanes[urgency].take(sent-known.bookings[urgency].bytes, now)
	*known = paced{sent: sent}
}

// leave ends the wait of a type that needs no write.
func (p *pace) leave(name string) { p.get(name).bookings = [changes]booking{} }

// forget removes a type that is gone.
func (p *pace) forget(name string) { delete(p.types, name) }

func (p *pace) get(name string) *paced {
	if p.types[name] == nil {
		p.types[name] = &paced{}
	}
	return p.types[name]
}

func (l *lane) take(bytes int64, now time.Time) {
	l.free = later(l.free, now).Add(time.Duration(float64(bytes) / float64(l.bytesPerSecond) * float64(time.Second)))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
