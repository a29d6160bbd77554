// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package breaker limits how many objects may go at once because of a fault that they may share.
package breaker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Window is the time within which objects count as gone together, even if they go one by one.
const Window = 10 * time.Minute

// Limit returns how many of all objects may go within the Window.
func Limit(all int) int { return max(3, all/5) }

// Recent maps the UID of each object that went within the Window to the time.
type Recent map[types.UID]time.Time

// Count forgets objects that went before the Window, and returns how many are left. A time in the future, left by a
// clock that was set back, becomes now.
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
