// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/ui"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

var (
	update   = flag.Bool("update", false, "write the pictures of docs/pictures")
	pictures = flag.String("pictures", "", "write a picture of every view into this folder")
)

//go:embed checks.js
var checks string

// browser is a Chromium for all tests.
var browser = sync.OnceValues(func() (context.Context, error) {
	program, err := filepath.Abs("../../../../bin/chromium/chromium")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("there is no Chromium: unpack it by `make chromium`: %w", err)
	}
	// It ends with the tests.
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	stopBrowser = func() { _ = chromedp.Cancel(ctx); stop() }
	return ctx, chromedp.Run(ctx)
})

var stopBrowser = func() {}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	code := m.Run()
	stopBrowser()
	os.Exit(code)
}

// tab is a page in the browser, and what went wrong on it.
type tab struct {
	context.Context
	t    *testing.T
	base string
	mu   sync.Mutex
	// wrong are messages of the console, exceptions, and requests that leave.
	wrong []string
}

// open starts to serve a source, and opens a tab of that size.
func open(t *testing.T, source ui.Source, still bool, width, height int64, theme string) *tab {
	t.Helper()
	mapping, err := topology.Parse(append(topology.Defaults(), "spine=fabric.topograph.run/tier-1"))
	if err != nil {
		t.Fatal(err)
	}
	screen := ui.New(source, ui.Options{Token: "token", Still: still, Topology: mapping})
	running, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go screen.Run(running)
	server := httptest.NewServer(screen)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return openAt(t, server.URL+"/token/", width, height, theme)
}

// openAt opens a tab of that size for the page whose views are below base.
func openAt(t *testing.T, base string, width, height int64, theme string) *tab {
	t.Helper()
	all, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, closeTab := chromedp.NewContext(all)
	t.Cleanup(closeTab)
	ctx, late := context.WithTimeout(ctx, 10*poll.Patience())
	t.Cleanup(late)
	tab := &tab{Context: ctx, t: t, base: base}
	chromedp.ListenTarget(ctx, func(event any) {
		switch event := event.(type) {
		case *runtime.EventConsoleAPICalled:
			tab.note(fmt.Sprintf("console: %s %+v", event.Type, event.Args))
		case *runtime.EventExceptionThrown:
			tab.note("exception: " + event.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			tab.note("log: " + event.Entry.Text + " " + event.Entry.URL)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(event.Request.URL, tab.base) {
				tab.note("request: " + event.Request.URL)
			}
		}
	})
	tab.do(network.Enable(), log.Enable(), emulation.SetDeviceMetricsOverride(width, height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme},
			{Name: "prefers-reduced-motion", Value: "reduce"}}))
	return tab
}

func (tab *tab) note(what string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.wrong = append(tab.wrong, what)
}

// quiet fails if something went wrong on the page.
func (tab *tab) quiet() {
	tab.t.Helper()
	tab.mu.Lock()
	defer tab.mu.Unlock()
	for _, what := range tab.wrong {
		tab.t.Error(what)
	}
	tab.wrong = nil
}

func (tab *tab) do(actions ...chromedp.Action) {
	tab.t.Helper()
	if err := chromedp.Run(tab.Context, actions...); err != nil {
		tab.t.Fatal(err)
	}
}

// until waits until an expression is true on the page. On a page that is not loaded yet it may throw, and while another page takes its
// place Chromium answers with an error, of which there are several.
func (tab *tab) until(expression string) {
	tab.t.Helper()
	attempt := "(() => { try { return Boolean(" + expression + ") } catch { return false } })()"
	err := poll.Await(tab.Context, expression, func(ctx context.Context) error {
		var holds bool
		if err := chromedp.Run(ctx, chromedp.Evaluate(attempt, &holds)); err != nil {
			return err
		}
		if !holds {
			return errors.New("it is not so")
		}
		return nil
	})
	if err != nil {
		var text string
		_ = chromedp.Run(tab.Context, chromedp.Evaluate("document.body.innerText", &text))
		tab.t.Fatalf("%v, on:\n%s", err, text)
	}
}

// check looks for what keeps people from using the page.
func (tab *tab) check() {
	tab.t.Helper()
	var problems []string
	tab.do(chromedp.Evaluate(checks, &problems))
	for _, problem := range problems {
		tab.t.Error(problem)
	}
}

// longest is how much of a page is in a picture, in pixels.
const longest = 3000

// picture writes the page as a PNG into the folder of -pictures and, with -update, what is seen as a small WebP into that of the docs.
func (tab *tab) picture(name string, inDocs bool) {
	tab.t.Helper()
	write := func(path string, capture *page.CaptureScreenshotParams) {
		tab.do(chromedp.ActionFunc(func(ctx context.Context) error {
			content, err := capture.Do(ctx)
			if err != nil {
				return err
			}
			if strings.HasSuffix(path, ".webp") && len(content) > 100<<10 {
				tab.t.Errorf("%s has %d KiB", path, len(content)>>10)
			}
			return os.WriteFile(path, content, 0o644)
		}))
	}
	if *pictures != "" {
		var whole page.Viewport
		// What is not on the screen is drawn, too.
		tab.do(chromedp.Evaluate(
			"document.querySelectorAll('.rack').forEach((rack) => { rack.style.contentVisibility = 'visible' })", nil),
			chromedp.Evaluate(
				"({width: innerWidth, height: document.documentElement.scrollHeight, scale: 1})", &whole))
		whole.Height = min(whole.Height, longest)
		write(filepath.Join(*pictures, name+".png"), page.CaptureScreenshot().WithCaptureBeyondViewport(true).WithClip(&whole))
	}
	if *update && inDocs {
		write(filepath.Join("../../../../docs/pictures", name+".webp"),
			page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatWebp).WithQuality(60))
	}
}

// reference is the reference fleet of a sandbox, with a pod that waits.
func reference(t *testing.T) *view.Snapshot {
	t.Helper()
	file, err := os.Open("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	snapshot, err := view.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train-more",
		CreationTimestamp: metav1.NewTime(snapshot.Time.Add(-7 * time.Minute))}}
	pod.Status.Phase = corev1.PodPending
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: env.Resources("nvidia.com/gpu", "8")}}}
	snapshot.Tenant.Pods = append(snapshot.Tenant.Pods, pod)
	return snapshot
}

// inDocs are the pictures of docs/pictures.
var inDocs = map[string]bool{"reference-fleet-light": true, "500-fleet-dark": true, "500-capacity-light": true,
	"reference-pending-light": true, "500-server-light": true, "reference-whatif-light": true}

// TestViews looks at each view of four fleets, in two sizes, light and dark. Of the one with 44 servers, the clusters of two tenants were
// read.
func TestViews(t *testing.T) {
	system.Only(t)
	for name, fleet := range map[string]struct {
		snapshot *view.Snapshot
		server   string
		waits    string
		// tenant is whom What if asks for, if several can be.
		tenant string
	}{
		"reference": {reference(t), "server-01", "pod default/train-more is Pending", ""},
		"44":        {fleettest.Shared(44), "server-0014", "pod default/training-0 of TenantCluster acme/acme is Pending", "acme/acme"},
		"500":       {fleettest.New(500), "server-0014", "pod default/training-0 is Pending", ""},
		"10000":     {fleettest.New(10_000), "server-0014", "pod default/training-0 is Pending", ""},
	} {
		servers := len(fleet.snapshot.Management.Hosts)
		question := url.Values{"ask": {"workload"}, "pods": {"3"}, "needs": {"nvidia.com/gpu=4"}, "tenant": {fleet.tenant}}.Encode()
		for view, want := range map[string]struct{ path, text string }{
			"fleet": {"", fmt.Sprintf("%d servers", servers)}, "capacity": {"capacity", "Quota of servers"}, "pending": {"pending", fleet.waits},
			"issues": {"issues", "What to do"}, "server": {"server/metal3-system/" + fleet.server, "Hardware"},
			"whatif": {"whatif?" + question, "The fleet as it would be"},
		} {
			for _, theme := range []string{"light", "dark"} {
				picture := name + "-" + view + "-" + theme
				t.Run(picture, func(t *testing.T) {
					// The source never changes, and the page follows it all the same.
					tab := open(t, fleettest.NewChanging(fleet.snapshot), false, 1280, 800, theme)
					tab.do(chromedp.Navigate(tab.base + want.path))
					tab.until(fmt.Sprintf("document.body.innerText.includes(%q) && (document.documentElement.dataset.frozen === '' || "+
						"document.getElementById('link').textContent === 'live')", want.text))
					tab.look(picture)
				})
			}
		}
	}
}

// look checks a page on a desktop and on a phone, and takes pictures of it.
func (tab *tab) look(picture string) {
	tab.t.Helper()
	tab.picture(picture, inDocs[picture])
	tab.check()
	tab.tabs()
	tab.do(emulation.SetDeviceMetricsOverride(390, 844, 1, true))
	tab.check()
	tab.picture(picture+"-small", false)
	tab.quiet()
}

// tabs presses Tab: each time something else has the focus, and shows it.
func (tab *tab) tabs() {
	tab.t.Helper()
	tab.do(chromedp.Evaluate("document.activeElement.blur()", nil))
	reached := 0
	for last := ""; reached < 12; reached++ {
		var now struct {
			Element string
			Seen    bool
		}
		tab.do(chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(`(() => { const at = document.activeElement; return {element: at.outerHTML.slice(0, 200),
			seen: getComputedStyle(at).outlineStyle !== 'none'}; })()`, &now))
		if strings.HasPrefix(now.Element, "<body") {
			break // it has been everywhere
		}
		if now.Element == last || !now.Seen {
			tab.t.Errorf("after Tab, the focus is at %s, and seen: %t", now.Element, now.Seen)
		}
		last = now.Element
	}
	tab.do(chromedp.Evaluate("document.activeElement.blur()", nil))
	if reached < 7 { // the way to the content, five views, and the theme
		tab.t.Errorf("Tab reaches only %d elements", reached)
	}
}

// state is an expression for the state that a tile shows.
func state(server string) string {
	return fmt.Sprintf(`document.querySelector('[data-server="metal3-system/%s"]')?.dataset.state`, server)
}

// problems is how many issues are to be seen to.
func problems(snapshot *view.Snapshot) (count int) {
	for _, issue := range view.New(snapshot).Issues() {
		if issue.Severity != view.Info {
			count++
		}
	}
	return count
}

// TestFollow: what changes appears on the page that is open.
func TestFollow(t *testing.T) {
	system.Only(t)
	source := fleettest.NewChanging(fleettest.New(40))
	tab := open(t, source, false, 1280, 800, "light")
	changed, server := fleettest.Quarantined(t, 40)
	tab.do(chromedp.Navigate(tab.base))
	tab.until(state(server) + " === 'available'")
	tab.do(chromedp.Evaluate(`window.stays = true; document.querySelector('[data-server="metal3-system/`+server+`"]').focus()`, nil))
	source.Change(changed, "")
	tab.until(state(server) + " === 'quarantined' && document.querySelector('.moves').innerText.includes('" + server + " available')")
	tab.until(fmt.Sprintf(`document.querySelector('nav .broken').innerText === '%d'`, problems(changed)))
	tab.until(`window.stays && document.activeElement.dataset.server === 'metal3-system/` + server + `'`)
	source.Change(fleettest.New(60), "reading machines in the management cluster, connection refused")
	tab.until(`document.body.innerText.includes('60 servers') && document.querySelectorAll('.rack').length === 3`)
	tab.until(`document.querySelector('.notice').innerText.includes('connection refused') && window.stays`)
	source.Change(fleettest.New(20), "")
	tab.until(`document.body.innerText.includes('20 servers') && document.querySelectorAll('.rack').length === 1`)
	tab.until(`!document.querySelector('.notice')`)
	tab.quiet()

	tab.do(chromedp.Navigate(tab.base + "capacity"))
	tab.until(`document.querySelectorAll('.plots path').length > 4`)
	tab.check()
	tab.quiet()
}

// TestFilter: a filter needs no new page, and stays in the address.
func TestFilter(t *testing.T) {
	system.Only(t)
	tab := open(t, fleettest.NewChanging(fleettest.New(500)), false, 1280, 800, "light")
	tiles := `[...document.querySelectorAll('.tile')]`
	tab.do(chromedp.Navigate(tab.base))
	tab.until(tiles + ".length === 500")
	// Not by keys: a select takes those that come late for the beginning of another word.
	tab.do(chromedp.Evaluate(`(() => {
		window.stays = true
		const state = document.querySelector('select[name=state]')
		state.value = 'quarantined'
		state.dispatchEvent(new Event('change', {bubbles: true}))
	})()`, nil))
	tab.until(tiles + ".every((tile) => tile.dataset.state === 'quarantined') && location.search === '?state=quarantined' && window.stays")
	tab.do(chromedp.SendKeys("input[name=text]", "server-0209\r", chromedp.ByQuery))
	tab.until(tiles + ".length === 1 && window.stays && document.querySelector('.shown').innerText === '1 of 500 servers'")
	tab.do(chromedp.Reload())
	tab.until(tiles + ".length === 1 && document.querySelector('input[name=text]').value === 'server-0209'")
	tab.do(chromedp.Click(".tile", chromedp.ByQuery))
	tab.until("document.querySelector('h1').innerText === 'server-0209' && document.body.innerText.includes('is quarantined')")
	tab.do(chromedp.Click("nav a", chromedp.ByQuery))
	tab.until(tiles + ".length === 500")
	tab.do(chromedp.Click("#theme", chromedp.ByQuery), chromedp.Click("#theme", chromedp.ByQuery))
	tab.until("document.documentElement.dataset.theme === 'dark'")
	tab.check()
	tab.do(chromedp.Reload())
	tab.until("document.documentElement.dataset.theme === 'dark' && document.getElementById('theme').textContent === 'Theme: dark'")
	tab.do(chromedp.Evaluate("localStorage.clear()", nil))
	tab.quiet()
}

// TestUntilAcrossPages: a wait that begins while one page takes the place of another goes on.
func TestUntilAcrossPages(t *testing.T) {
	system.Only(t)
	tab := open(t, fleettest.NewChanging(fleettest.New(20)), false, 1280, 800, "light")
	tab.do(chromedp.Navigate(tab.base))
	for page := range 100 {
		tab.do(chromedp.Evaluate(fmt.Sprintf("setTimeout(() => { location.search = '?text=server-%d' }, %d)", page, page/10), nil))
		tab.until(fmt.Sprintf("location.search === '?text=server-%d' && document.querySelector('.shown')", page))
	}
}

// TestLargeFleet opens 10,000 servers, and says how long it takes.
func TestLargeFleet(t *testing.T) {
	system.Only(t)
	source := fleettest.NewChanging(fleettest.New(10_000))
	tab := open(t, source, false, 1280, 800, "light")
	changed, server := fleettest.Quarantined(t, 10_000)
	tab.do(chromedp.Navigate(tab.base))
	tab.until("document.querySelectorAll('.rack').length === 500 && performance.getEntriesByName('first-contentful-paint').length > 0")
	var timing struct{ Paint, Load, Heap, Elements float64 }
	tab.do(chromedp.Evaluate(`({paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,
		load: performance.getEntriesByType('navigation')[0].loadEventEnd, heap: performance.memory.usedJSHeapSize / 2 ** 20,
		elements: document.querySelectorAll('*').length})`, &timing))
	t.Logf("10,000 servers: first paint after %.0f ms, loaded after %.0f ms, %.0f elements, %.1f MiB of JavaScript", timing.Paint, timing.Load,
		timing.Elements, timing.Heap)
	source.Change(changed, "")
	tab.until("document.querySelector('.moves').innerText.includes('" + server + "')")
	tab.quiet()
}
