// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestCertificates(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		flags  []string
		names  []string
		want   []string
	}{
		"Off": {reason: "without a webhook its flags mean nothing", flags: []string{"--webhook-ca-settle=0s"}},
		"On": {reason: "the Service has two names", flags: []string{"--webhook-cert-rotation"},
			names: []string{"karpenter-metal3-webhook.default.svc", "karpenter-metal3-webhook.default.svc.cluster.local"}},
		"Service": {reason: "as the chart has it", flags: []string{"--webhook-cert-rotation", "--webhook-namespace=n", "--webhook-service=s"},
			names: []string{"s.n.svc", "s.n.svc.cluster.local"}},
		"Names": {reason: "the webhook is outside of the cluster", flags: []string{"--webhook-cert-rotation", "--webhook-cert-names=192.0.2.1"},
			names: []string{"192.0.2.1"}},
		"Wrong": {reason: "each flag is named", names: []string{"a"}, flags: []string{"--webhook-cert-rotation",
			"--webhook-cert-names=a", "--webhook-namespace=", "--webhook-cert-secret=", "--webhook-service=", "--webhook-configuration=",
			"--webhook-cert-lifetime=0s", "--webhook-ca-lifetime=-1s", "--webhook-ca-settle=0s"},
			want: []string{"--webhook-namespace is empty", "--webhook-cert-secret is empty: set it or KARPENTER_METAL3_WEBHOOK_CERT_SECRET",
				"--webhook-service is empty", "--webhook-configuration is empty", "--webhook-cert-lifetime is 0s", "--webhook-ca-lifetime is -1s",
				"--webhook-ca-settle is 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, flags := newOptions().certificates, pflag.NewFlagSet("test", pflag.ContinueOnError)
			c.addFlags(flags)
			if err := flags.Parse(tc.flags); err != nil {
				t.Fatal(err)
			}
			text := ""
			if err := c.complete(); err != nil {
				text = err.Error()
			}
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %q does not say %s", tc.reason, text, want)
				}
			}
			if (text == "") != (len(tc.want) == 0) {
				t.Errorf("%s: got %q", tc.reason, text)
			}
			if diff := cmp.Diff(tc.names, c.settings.Names); diff != "" {
				t.Errorf("%s: names (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
