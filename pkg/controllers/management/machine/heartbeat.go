// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// maxPause is the longest time between two beats of a manager that runs. If more passes, the manager or its machine was stopped, or the
// clock was set.
const maxPause = time.Minute

// heartbeat knows since when the manager has run without a pause. Time that it has not seen says nothing about a Machine: Metal3 may have
// been stopped with it, and a clock that is set shows hours that have not passed. The zero value is ready to use.
type heartbeat struct {
	lock sync.Mutex
	// since is the first beat, because the process may have waited for long to become the leader, or the first one after the last pause.
	last, since time.Time
	// ahead is what the clock showed before it was set back: what was noted up to then is older than it seems.
	ahead time.Time
}

// beat is called more often than maxPause. It returns for how long there was no beat, by a clock that may have been set, if that is too
// long.
func (h *heartbeat) beat(now time.Time) (pause time.Duration) {
	now = now.Round(0) // the monotonic clock does not see that the other one is set
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

// isOld returns whether what was noted at a time is from before another, or from before the clock was set back. That may have been before
// this process was started: then a note from the future shows it.
func (h *heartbeat) isOld(noted, before time.Time) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	if noted.After(h.last) && noted.After(h.ahead) {
		h.ahead = noted
	}
	return noted.Before(before) || !noted.After(h.ahead)
}

// earliest is when a Machine with that deadline may be given up at the earliest. After a start and after a pause the whole deadline begins
// again. Nobody knows how much of it has passed: Metal3 may have been stopped as well, and the last progress may have been noted by the
// clock of another machine.
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
