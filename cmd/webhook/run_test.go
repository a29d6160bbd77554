// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	cliflag "k8s.io/component-base/cli/flag"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestLinger(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	ctx, end := context.WithCancel(t.Context())
	lasting, stop := linger(ctx, clk, time.Minute)
	defer stop()
	end()
	for !clk.HasWaiters() {
		if lasting.Err() != nil {
			t.Fatal("it ended at once")
		}
	}
	clk.Step(time.Minute)
	<-lasting.Done()

	forever, stop := linger(t.Context(), clk, time.Minute)
	stop()
	<-forever.Done()
}

func TestOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*options)
		want   []string
	}{
		"Defaults": {reason: "they go together", change: func(*options) {}},
		"Address":  {reason: "it has a port", change: func(o *options) { o.address = "127.0.0.1" }, want: []string{"--webhook-bind-address"}},
		"NoFiles": {reason: "no files are generated", change: func(o *options) { o.certRotation, o.certDir = false, "/nowhere" },
			want: []string{"--cert-dir", "/nowhere"}},
		"Rotation": {reason: "each flag is named", change: func(o *options) { o.secret = types.NamespacedName{} },
			want: []string{"--namespace is empty", "--cert-secret is empty", "KARPENTER_METAL3_CERT_SECRET"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOptions()
			o.addFlags(&cliflag.NamedFlagSets{})
			o.address, o.process.MetricsAddress, o.process.HealthAddress = "127.0.0.1:1", "0", "0"
			if name != "Address" {
				o.address = "127.0.0.1:0"
			}
			tc.change(o)
			_, _, err := o.complete()
			text := ""
			if err != nil {
				text = err.Error()
			}
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %q does not say %s", tc.reason, text, want)
				}
			}
		})
	}
	o := newOptions()
	o.address, o.process.MetricsAddress, o.process.HealthAddress = "127.0.0.1:45999", "0", "0"
	if _, port, err := o.complete(); err != nil || port != 45999 {
		t.Errorf("got port %d, %v", port, err)
	}
}
