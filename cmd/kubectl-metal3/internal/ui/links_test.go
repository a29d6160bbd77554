// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

func TestParseLinks(t *testing.T) {
	for name, tc := range map[string]struct{ reason, entry, want string }{
		"NoName":  {"the link has no text", "=https://example.com", "write NAME=URL"},
		"NoURL":   {"it leads nowhere", "Grafana", "write NAME=URL"},
		"Syntax":  {"a typing error", "G=https://example.com/{{ .Host }", `--link is "G=https://example.com/{{ .Host }"`},
		"Field":   {"a word that there is not", "G=https://example.com/{{ .Server }}", "Server"},
		"Script":  {"it would run in the page", "G=javascript:alert(1)", "none with https or http"},
		"NoHost":  {"it would lead into the page", "G=/d/{{ .Host }}", "none with https or http"},
		"File":    {"a file of the reader", "G=file:///etc/{{ .Host }}", "none with https or http"},
		"BadHost": {"a browser would not open it", "G=https://a b/{{ .Host }}", "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			links, err := ParseLinks([]string{"Good=https://example.com/{{ .Host }}", tc.entry})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--link is") || len(links) != 1 {
				t.Errorf("%s: %v and %d links, want %q", tc.reason, err, len(links), tc.want)
			}
		})
	}
}

// TestLinks: a server has the links whose names it has, and a tenant those that need no more than its own.
func TestLinks(t *testing.T) {
	links, err := ParseLinks([]string{"Grafana=https://grafana.example.com/d/x?var-host={{ .Host }}&var-namespace={{ .Namespace }}",
		"Node=https://nodes.example.com/{{ .TenantNamespace }}/{{ .Node }}?machine={{ .Machine }}",
		"Bill=http://bills.example.com/{{ .Tenant }}"})
	if err != nil {
		t.Fatal(err)
	}
	screen := New(view.Still(fleettest.New(40)), Options{Token: token, Still: true, Links: links})
	const grafana = `href="https://grafana.example.com/d/x?var-host=`
	for name, tc := range map[string]struct {
		reason, path string
		has, hasNot  []string
	}{
		"Joined": {"it has all names", "/token/server/metal3-system/server-0000", []string{
			grafana + `server-0000&amp;var-namespace=metal3-system"`, `href="https://nodes.example.com/acme/default-0000?machine=default-0000"`,
			`href="http://bills.example.com/acme"`}, nil},
		"Booting": {"it is no node yet", "/token/server/metal3-system/server-0014", []string{grafana + "server-0014",
			`href="http://bills.example.com/initech"`}, []string{"nodes.example.com"}},
		"Free": {"nobody uses it", "/token/server/metal3-system/server-0020", []string{grafana + "server-0020"},
			[]string{"nodes.example.com", "bills.example.com"}},
		"Tenants": {"a tenant is no server", "/token/capacity", []string{`href="http://bills.example.com/umbrella"`},
			[]string{"nodes.example.com", "grafana.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			page := get(t, screen, tc.path, nil).Body.String()
			for _, text := range tc.has {
				if !strings.Contains(page, text) {
					t.Errorf("%s, and there is no %s in %s", tc.reason, text, page)
				}
			}
			for _, text := range tc.hasNot {
				if strings.Contains(page, text) {
					t.Errorf("%s, and there is %s", tc.reason, text)
				}
			}
		})
	}
	// Whatever a name is, it is one value of the URL.
	if address, err := links[0].lead(linked{host: "a&b=c d/é?#", namespace: "n"}); err != nil ||
		address != "https://grafana.example.com/d/x?var-host=a%26b%3Dc+d%2F%C3%A9%3F%23&var-namespace=n" {
		t.Errorf("%s (%v)", address, err)
	}
}
