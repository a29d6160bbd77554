// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// maxPause is the longest time between two beats of a running manager. After a longer time the manager or its machine
// was stopped, or the clock was set.
const maxPause = time.Minute

// heartbeat knows since when the manager has run without a pause. A pause says nothing about a Machine: Metal3 may have
// been stopped, too, and a clock that is set shows hours that have not passed. The zero value is ready to use.
type heartbeat struct {
	lock sync.Mutex
	// since is the first beat, because the process may have waited for long to become the leader, or the first beat after
	// the last pause.
	last, since time.Time
	// ahead is the time that the clock showed before it was set back: notes up to that time are older than they seem.
	ahead time.Time
}

// beat notes that the manager runs. Call it more often than maxPause. It returns the time since the last beat if that
// is too long, or else 0. The clock may have been set, so the time may be negative.
func (h *heartbeat) beat(now time.Time) (pause time.Duration) {
	now = now.Round(0) // the monotonic clock does not show that the wall clock was set
	h.lock.Lock()
	defer h.lock.Unlock()
	last := h.last
	if h.last = now; last.IsZero() {
		h.since = now
		return 0
	}
	if pause = now.Sub(last); pause.Abs() <= maxPause {
		return 0
	}
	h.since = now
	if pause < 0 && last.After(h.ahead) {
		h.ahead = last
	}
	return pause
}

// isOld reports whether a note is from before a given time, or from before the clock was set back. The clock may have
// been set back before this process started: then a note from the future shows it.
func (h *heartbeat) isOld(noted, before time.Time) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	if noted.After(h.last) && noted.After(h.ahead) {
		h.ahead = noted
	}
	return noted.Before(before) || !noted.After(h.ahead)
}

// earliest returns when a Machine with that deadline may be given up at the earliest. After a start and after a pause
// the whole deadline begins again. Nobody knows how much has passed: Metal3 may have been stopped as well, and the clock
// of another machine may have noted the last progress.
func (h *heartbeat) earliest(deadline time.Duration) time.Time {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.since.Add(deadline)
}

// beat notes that the manager runs.
func (r *Reconciler) beat(ctx context.Context) {
	if pause := r.heartbeat.beat(r.clock.Now()); pause != 0 {
		log.FromContext(ctx).Info("the manager was stopped, or its clock was set: the provisioning deadlines of all Machines begin again",
			"pause", pause.String())
	}
}
