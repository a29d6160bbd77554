// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"testing"

	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/webhook"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/pki"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// Webhook is the webhook, running as a process, and configured in its API server.
type Webhook struct {
	*Manager
	// URL of the webhook, without a path.
	URL string
	// Client trusts the webhook's certificate, and keeps connections as the API server does.
	Client *http.Client
}

// StartWebhook starts bin/webhook, configures it in the API server, and waits until it is ready. It is stopped when the
// test ends.
func (c *Cluster) StartWebhook(t testing.TB) *Webhook {
	t.Helper()
	address, health := freeAddress(t), freeAddress(t)
	authority, err := pki.NewAuthority("webhook", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Serving("webhook", nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	certificates := t.TempDir()
	if _, _, err := pair.WriteFiles(certificates, "tls"); err != nil {
		t.Fatal(err)
	}
	configurations, err := webhook.Both(webhook.Options{URL: "https://" + address, CABundle: authority.Certificate()})
	if err != nil {
		t.Fatal(err)
	}
	for _, configuration := range configurations {
		if err := c.Client.Create(t.Context(), configuration); err != nil {
			t.Fatal(err)
		}
	}
	process := c.start(t, "webhook", nil, "--webhook-bind-address", address, "--shutdown-delay=0",
		"--cert-rotation=false", "--cert-dir", certificates, "--health-probe-bind-address", health)
	poll.Eventually(t, "the webhook is ready", func(ctx context.Context) error {
		return cluster.CheckURL(ctx, http.DefaultClient, "http://"+health+"/readyz")
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Certificate())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	return &Webhook{Manager: process, URL: "https://" + address, Client: &http.Client{Transport: transport}}
}
