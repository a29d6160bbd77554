// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package poll waits for a condition, and knows what was missing when the time ran out.
package poll

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Until polls until the check returns no error. If the context ends first, it returns the last error, but for that of a check which the
// context has interrupted: it says only that there was no time left.
func Until(ctx context.Context, interval time.Duration, check func(context.Context) error) error {
	var last error
	if err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	}); err != nil {
		return cmp.Or(last, err)
	}
	return nil
}
