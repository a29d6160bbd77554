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
	// waitTimeout is how long a test waits for what should happen at once. It is long, because a test machine may be busy,
	// and costs nothing when all is well.
	waitTimeout = 3 * time.Minute
	interval    = 25 * time.Millisecond
)

// Eventually looks again and again until the check has nothing to say, and fails the test with the last error if that
// takes more than three minutes, which is far beyond what anything takes.
func Eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), interval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, last)
	}
}
