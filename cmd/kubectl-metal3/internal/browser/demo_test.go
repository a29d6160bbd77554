// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/demo"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// remember has the page keep, in window.was, the states that each tile shows, one after the other.
const remember = `window.was = {}; const look = () => { for (const tile of document.querySelectorAll('.tile')) {
	const states = window.was[tile.dataset.server] ??= []; if (states.at(-1) !== tile.dataset.state) states.push(tile.dataset.state); } };
	look(); new MutationObserver(look).observe(document.querySelector('main'), {subtree: true, childList: true, attributes: true});`

// TestDemo has the page open while the demo runs. Three servers are taken, become nodes and are free again, and the page, which is loaded
// once, shows each of these states.
func TestDemo(t *testing.T) {
	system.Only(t)
	servers, err := fleet.Reference()
	if err != nil {
		t.Fatal(err)
	}
	binaries, err := filepath.Abs("../../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	config := sandbox.Config{Dir: t.TempDir(), Binaries: cluster.Binaries{binaries}, Fleet: servers, Progress: t.Output(),
		Screen: true}
	running, err := sandbox.Up(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	tab := openAt(t, running.Screen(), 1280, 800, "light")
	tab.do(chromedp.Navigate(tab.base))
	tab.until(fmt.Sprintf("document.querySelectorAll('.tile').length === %d", len(servers)))
	tab.do(chromedp.Evaluate(remember, nil))

	if err := demo.Run(t.Context(), demo.Options{
		Management: running.ManagementConfig(), Tenant: running.TenantConfig(), HostNamespace: sandbox.HostNamespace,
		TenantNamespace: sandbox.DefaultTenant, Out: t.Output(),
	}); err != nil {
		t.Fatal(err)
	}
	tab.until(`Object.values(window.was).filter((states) => /Joined.*available$/.test(states.join())).length === 3`)
	tab.until(`document.querySelectorAll('.tile[data-state=Joined]').length === 0 && document.querySelector('.moves').innerText.includes('Joined')`)
	tab.quiet()
	var was map[string][]string
	tab.do(chromedp.Evaluate("window.was", &was))
	t.Log("states on the page:", was)
}
