// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"

	"k8s.io/utils/clock"
)

// Clock shows the start time of the process plus the time elapsed since. So setting the system clock meanwhile does not
// change the length of a use. It implements clock.PassiveClock.
type Clock struct {
	system clock.PassiveClock
	begin  time.Time
}

// NewClock returns a Clock that begins now. Since of system must measure elapsed time, as in clock.RealClock.
func NewClock(system clock.PassiveClock) Clock {
	return Clock{system: system, begin: system.Now()}
}

// Now implements clock.PassiveClock.
func (c Clock) Now() time.Time { return c.begin.Add(c.system.Since(c.begin)) }

// Since implements clock.PassiveClock.
func (c Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
