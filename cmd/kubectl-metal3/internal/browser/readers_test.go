// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"cmp"
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/ui"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// write creates what a snapshot has of the management cluster.
func write(t *testing.T, environment *env.Environment, snapshot *view.Snapshot) {
	t.Helper()
	create := func(object client.Object) {
		if err := environment.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	management := snapshot.Management
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: management.Hosts[0].Namespace}})
	for i := range management.NodeProviders {
		create(&management.NodeProviders[i])
	}
	for i := range management.NodeTypes {
		create(&management.NodeTypes[i])
	}
	for i := range management.TenantClusters {
		tenant := &management.TenantClusters[i]
		tenant.Spec.APIServerEndpoint = "192.0.2.1:6443"
		create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant.Namespace}})
		create(tenant)
	}
	uids := map[string]types.UID{}
	for i := range management.Hosts {
		uids[management.Hosts[i].Name] = environment.CreateHost(t, &management.Hosts[i]).UID
	}
	for i := range management.Machines {
		machine := &management.Machines[i]
		status := machine.Status.DeepCopy()
		status.HostRef.UID, machine.DeletionTimestamp, machine.Spec.NodeTypeRef = uids[status.HostRef.Name], nil, status.NodeTypeRef
		for j := range status.Conditions { // what the API asks of a condition, and no view shows
			condition := &status.Conditions[j]
			condition.Reason = cmp.Or(condition.Reason, "Test")
			if condition.LastTransitionTime.IsZero() {
				condition.LastTransitionTime = snapshot.Time
			}
		}
		create(machine)
		machine.Status = *status
		if err := environment.Client.Status().Update(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReaders: two readers with different rights on a real API server look at the same page, in a browser of theirs.
func TestReaders(t *testing.T) {
	system.Only(t)
	environment := env.NewEnvironment(t)
	write(t, environment, fleettest.New(44))
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	server := httptest.NewServer(ui.NewReaders(ctx, ui.TokenAccess{Config: environment.Config, Topology: topology.Default()}, 20,
		clock.RealClock{}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })

	platform := environment.Reader(t, "platform", map[string][]string{"": {"*"}})
	acme := environment.Reader(t, "acme", map[string][]string{"acme": {"machines", "tenantclusters"}})
	for name, tc := range map[string]struct {
		reason, token, path, has string
		// hidden is what the other reader sees.
		hidden []string
	}{
		"platform-fleet":    {reason: "it may list all", token: platform, has: "44 servers"},
		"platform-capacity": {reason: "it may list all", token: platform, path: "capacity", has: "umbrella/umbrella"},
		"acme-fleet": {reason: "it may not list servers", token: acme, path: "namespaces/acme/",
			has: "you may not list or not watch baremetalhosts", hidden: []string{"server-00", "initech", "umbrella"}},
		"acme-capacity": {reason: "it may list its own", token: acme, path: "namespaces/acme/capacity", has: "acme/acme",
			hidden: []string{"server-00", "initech", "umbrella"}},
		"acme-all": {reason: "it may not list those of all namespaces", token: acme, path: "capacity",
			has: "you may not list or not watch tenantclusters", hidden: []string{"server-00", "initech", "umbrella", "acme/acme"}},
	} {
		t.Run(name, func(t *testing.T) {
			tab := openAt(t, server.URL+"/", 1280, 800, "light")
			tab.do(network.SetExtraHTTPHeaders(network.Headers{"Authorization": "Bearer " + tc.token}), chromedp.Navigate(tab.base+tc.path))
			tab.until(fmt.Sprintf("document.body.innerText.includes(%q) && document.getElementById('link').textContent === 'live'", tc.has))
			var shown string
			tab.do(chromedp.Evaluate("document.documentElement.outerHTML", &shown))
			for _, hidden := range tc.hidden {
				if strings.Contains(shown, hidden) {
					t.Errorf("%s, and sees %q", tc.reason, hidden)
				}
			}
			tab.look("reader-" + name)
		})
	}
}
