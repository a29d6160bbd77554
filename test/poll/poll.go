// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package poll waits for conditions, and knows what was missing when the time ran out. All tests wait by it, and for the same time.
package poll

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	// patience is how long a test waits for anything, times TEST_PATIENCE. It is far longer than anything takes, so that only a
	// test that fails waits for so long.
	patience = 3 * time.Minute
	// patienceVariable is a number above 0: 2 on machines that are slow, 30 for servers of metal.
	patienceVariable = "TEST_PATIENCE"

	// The first pauses between two checks are short, for what takes milliseconds. The later ones leave the machine to what is waited for.
	firstPause, lastPause = 2 * time.Millisecond, 200 * time.Millisecond
)

// Patience is how long a test waits for anything. It panics if TEST_PATIENCE is not a number above 0.
var Patience = sync.OnceValue(func() time.Duration {
	wait, err := patienceOf(os.Getenv(patienceVariable))
	if err != nil {
		panic(err)
	}
	return wait
})

// patienceOf is the patience for a value of TEST_PATIENCE.
func patienceOf(factor string) (time.Duration, error) {
	if factor == "" {
		return patience, nil
	}
	times, err := strconv.ParseFloat(factor, 64)
	if err != nil || !(times > 0 && times < 10_000) {
		return 0, fmt.Errorf("%s is %q: it must be a number above 0 and below 10000, such as 2", patienceVariable, factor)
	}
	return time.Duration(times * float64(patience)), nil
}

// T is what a wait needs of testing.TB. Programs import this package, too, and need not link package testing.
type T interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
}

// Eventually polls until the check returns no error. It fails the test with the last error when the patience is over.
func Eventually(t T, what string, check func(context.Context) error) {
	t.Helper()
	if err := Await(t.Context(), what, check); err != nil {
		t.Fatalf("%v", err)
	}
}

// Await is Eventually for goroutines and for what is no test: it returns the error. The context may end the wait before the patience does.
func Await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, done := WithPatience(ctx)
	defer done()
	if err := Until(ctx, check); err != nil {
		return fmt.Errorf("waiting until %s, %w: %w", what, context.Cause(ctx), err)
	}
	return nil
}

// Receive returns what comes out of a channel next, or the zero value once it is closed. It fails the test when the patience is over.
func Receive[V any](t T, what string, from <-chan V) V {
	t.Helper()
	ctx, done := WithPatience(t.Context())
	defer done()
	select {
	case value := <-from:
		return value
	case <-ctx.Done():
		t.Fatalf("waiting for %s, %v", what, context.Cause(ctx))
		panic("unreachable: Fatalf has ended the test")
	}
}

// WithPatience returns a context that ends when the patience is over, for a wait that something else does.
func WithPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, Patience(), fmt.Errorf("timed out after %s (%s makes it longer)", Patience(), patienceVariable))
}

// Until polls until the check returns no error. If the context ends first, it returns the last error, but for that of a check which the
// context has interrupted: it says only that there was no time left.
func Until(ctx context.Context, check func(context.Context) error) error {
	var last error
	for pause := firstPause; ; pause = min(pause*5/4, lastPause) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return cmp.Or(last, ctx.Err())
		case <-time.After(pause):
		}
	}
}
