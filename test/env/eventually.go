// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"testing"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
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
	ctx, done := context.WithTimeout(t.Context(), waitTimeout)
	defer done()
	if err := poll.Until(ctx, interval, check); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}
