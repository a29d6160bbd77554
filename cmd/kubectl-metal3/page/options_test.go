// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*testing.T, *options)
		// host is where the error or the configuration leads to.
		host string
		want []string
	}{
		"Server": {reason: "they go together", change: func(_ *testing.T, o *options) { o.server = "https://192.0.2.1:6443" },
			host: "https://192.0.2.1:6443"},
		"Pod": {reason: "kubelet says it", host: "https://[2001:db8::1]:6443", change: func(t *testing.T, _ *options) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "2001:db8::1")
			t.Setenv("KUBERNETES_SERVICE_PORT", "6443")
		}},
		"NoServer": {reason: "it is not known whom to ask", change: func(*testing.T, *options) {}, want: []string{"--server is empty"}},
		"ClearText": {reason: "others would read the tokens", want: []string{`--server is "http://192.0.2.1"`, "https URL only"},
			change: func(_ *testing.T, o *options) { o.server = "http://192.0.2.1" }},
		"All": {reason: "each flag is named", change: func(_ *testing.T, o *options) {
			o.server, o.authority, o.address, o.maxReaders, o.topologyLabels, o.links = "x", "/nowhere", "", 0, []string{"rack="}, []string{"x"}
		}, want: []string{"--server", "--certificate-authority", "/nowhere", "--page-bind-address is empty", "--max-readers",
			"--topology-labels", "--link"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			o := newOptions()
			o.address, o.healthAddress = "127.0.0.1:0", "127.0.0.1:0"
			tc.change(t, o)
			access, err := o.complete()
			text := ""
			if err != nil {
				text = err.Error()
			}
			if (err != nil) != (tc.want != nil) || tc.host != "" && access.Config.Host != tc.host {
				t.Errorf("%s: %v, the API server is %q", tc.reason, err, access.Config.Host)
			}
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %q does not say %s", tc.reason, text, want)
				}
			}
		})
	}
}
