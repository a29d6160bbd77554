// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// waitTimeout bounds each wait. It is long, because a test machine may be busy.
	waitTimeout = 3 * time.Minute
	interval    = 25 * time.Millisecond
)

// Eventually polls until the check returns no error, and fails the test with the last error after three minutes, that of a check
// which the three minutes have interrupted left out.
func Eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), interval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		// A check that ran out of time does not say what is wrong.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, last)
	}
}
