// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package poll

import (
	"context"
	"errors"
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
			err := Until(ctx, time.Millisecond, func(ctx context.Context) error {
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
