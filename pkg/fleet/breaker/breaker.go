// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package breaker bounds how many objects go at once because of a fault that they may share.
package breaker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Window is the time within which objects count as gone together: those that go one by one are as gone as those that go in one moment.
const Window = 10 * time.Minute

// Limit is how many of all objects may go within the Window.
func Limit(all int) int { return max(3, all/5) }

// Recent are the objects that have gone within the Window, by UID, and when they did.
type Recent map[types.UID]time.Time

// Count forgets those that went before the Window, and returns how many are left. What seems to go in the future, because the clock was set
// back, goes now.
func (r Recent) Count(now time.Time) int {
	for uid, gone := range r {
		switch {
		case now.Before(gone):
			r[uid] = now
		case now.Sub(gone) >= Window:
			delete(r, uid)
		}
	}
	return len(r)
}
