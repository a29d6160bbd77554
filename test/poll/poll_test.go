// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package poll

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	missing := errors.New("one server is missing")
	for name, tc := range map[string]struct {
		reason string
		// answers of the checks, one after the other. At the end, the context ends during the check, which returns its error.
		answers []error
		want    error
	}{
		"Success":     {reason: "nothing is missing any more", answers: []error{missing, nil}},
		"Interrupted": {reason: "the answer before says what is missing", answers: []error{missing}, want: missing},
		"AtOnce":      {reason: "there is no other answer", want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answers := tc.answers
			err := Until(ctx, func(ctx context.Context) error {
				if len(answers) == 0 {
					cancel()
					return ctx.Err()
				}
				answer := answers[0]
				answers = answers[1:]
				return answer
			})
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Errorf("got %v, want %v: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestPatienceOf(t *testing.T) {
	for factor, tc := range map[string]struct {
		reason string
		want   time.Duration
		fails  bool
	}{
		"":    {reason: "nothing is set", want: 3 * time.Minute},
		"30":  {reason: "servers of metal take longer", want: 90 * time.Minute},
		"0.5": {reason: "a fraction is a number", want: 90 * time.Second},
		"0":   {reason: "no wait could succeed", fails: true},
		"-1":  {reason: "nor could this one", fails: true},
		"NaN": {reason: "it is no number", fails: true},
		"1e9": {reason: "it is more than a duration holds", fails: true},
		"4m":  {reason: "it is no duration, but a factor", fails: true},
	} {
		got, err := patienceOf(factor)
		if got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%q: got %s and error %v: %s", factor, got, err, tc.reason)
		}
	}
}

// failing is a test that notes its failure.
type failing struct {
	*testing.T
	ctx    context.Context
	failed string
}

func (f *failing) Context() context.Context { return f.ctx }

// Fatalf ends the goroutine, as that of a test does.
func (f *failing) Fatalf(format string, args ...any) {
	f.failed = fmt.Sprintf(format, args...)
	panic(f)
}

// failure is how a test fails that waits until its context ends.
func failure(t *testing.T, wait func(T)) string {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := &failing{T: t, ctx: ctx}
	func() {
		defer func() { _ = recover() }()
		wait(f)
	}()
	return f.failed
}

// TestFailure: a wait that fails says what is missing.
func TestFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		wait func(T)
		want []string
	}{
		"Eventually": {
			wait: func(t T) {
				Eventually(t, "all servers are there", func(context.Context) error { return errors.New("one is missing") })
			},
			want: []string{"waiting until all servers are there", "one is missing"},
		},
		"Receive": {
			wait: func(t T) { Receive(t, "an event", make(chan string)) },
			want: []string{"waiting for an event"},
		},
	} {
		failed := failure(t, tc.wait)
		for _, want := range tc.want {
			if !strings.Contains(failed, want) {
				t.Errorf("%s: %q does not say %q", name, failed, want)
			}
		}
	}
}
