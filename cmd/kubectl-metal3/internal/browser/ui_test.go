// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	_ "embed"
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
	screen := ui.New(source, ui.Options{Token: "token", Still: still, Topology: topology.Default()})
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
	one := &tab{Context: ctx, t: t, base: base}
	chromedp.ListenTarget(ctx, func(event any) {
		switch event := event.(type) {
		case *runtime.EventConsoleAPICalled:
			one.note(fmt.Sprintf("console: %s %+v", event.Type, event.Args))
		case *runtime.EventExceptionThrown:
			one.note("exception: " + event.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			one.note("log: " + event.Entry.Text + " " + event.Entry.URL)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(event.Request.URL, one.base) {
				one.note("request: " + event.Request.URL)
			}
		}
	})
	one.do(network.Enable(), log.Enable(), emulation.SetDeviceMetricsOverride(width, height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme},
			{Name: "prefers-reduced-motion", Value: "reduce"}}))
	return one
}

func (one *tab) note(what string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.wrong = append(one.wrong, what)
}

// quiet fails if something went wrong on the page.
func (one *tab) quiet() {
	one.t.Helper()
	one.mu.Lock()
	defer one.mu.Unlock()
	for _, what := range one.wrong {
		one.t.Error(what)
	}
	one.wrong = nil
}

func (one *tab) do(actions ...chromedp.Action) {
	one.t.Helper()
	if err := chromedp.Run(one.Context, actions...); err != nil {
		one.t.Fatal(err)
	}
}

// navigated is how Chromium answers about a page that another has taken the place of meanwhile.
const navigated = "Cannot find context with specified id"

// until waits until an expression is true on the page. On a page that is not loaded yet it may throw.
func (one *tab) until(expression string) {
	one.t.Helper()
	attempt := "(() => { try { return Boolean(" + expression + ") } catch { return false } })()"
	wait := func() error {
		return chromedp.Run(one.Context, chromedp.Poll(attempt, nil, chromedp.WithPollingTimeout(poll.Patience())))
	}
	err := wait()
	for err != nil && strings.Contains(err.Error(), navigated) {
		err = wait()
	}
	if err != nil {
		var text string
		_ = chromedp.Run(one.Context, chromedp.Evaluate("document.body.innerText", &text))
		one.t.Fatalf("%s, %v, on:\n%s", expression, err, text)
	}
}

// check looks for what keeps people from using the page.
func (one *tab) check() {
	one.t.Helper()
	var problems []string
	one.do(chromedp.Evaluate(checks, &problems))
	for _, problem := range problems {
		one.t.Error(problem)
	}
}

// picture writes what is seen as a PNG into the folder of -pictures and, with -update, as a small WebP into that of the docs.
func (one *tab) picture(name string, inDocs bool) {
	one.t.Helper()
	write := func(path string, capture *page.CaptureScreenshotParams) {
		one.do(chromedp.ActionFunc(func(ctx context.Context) error {
			content, err := capture.Do(ctx)
			if err != nil {
				return err
			}
			if strings.HasSuffix(path, ".webp") && len(content) > 100<<10 {
				one.t.Errorf("%s has %d KiB", path, len(content)>>10)
			}
			return os.WriteFile(path, content, 0o644)
		}))
	}
	if *pictures != "" {
		write(filepath.Join(*pictures, name+".png"), page.CaptureScreenshot())
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

// TestViews looks at each view of two fleets, in two sizes, light and dark.
func TestViews(t *testing.T) {
	system.Only(t)
	for name, fleet := range map[string]struct {
		snapshot *view.Snapshot
		server   string
		waits    string
	}{
		"reference": {reference(t), "server-01", "pod default/train-more is Pending"},
		"500":       {fleettest.New(500), "server-0014", "pod default/training-0 is Pending"},
	} {
		servers := len(fleet.snapshot.Management.Hosts)
		for view, want := range map[string]struct{ path, text string }{
			"fleet": {"", fmt.Sprintf("%d servers", servers)}, "capacity": {"capacity", "Quota of servers"}, "pending": {"pending", fleet.waits},
			"issues": {"issues", "is in maintenance"}, "server": {"server/metal3-system/" + fleet.server, "Hardware"},
			"whatif": {"whatif?ask=workload&pods=3&needs=" + url.QueryEscape("nvidia.com/gpu=4"), "The fleet as it would be"},
		} {
			for _, theme := range []string{"light", "dark"} {
				picture := name + "-" + view + "-" + theme
				t.Run(picture, func(t *testing.T) {
					// The source never changes, and the page follows it all the same.
					one := open(t, fleettest.NewChanging(fleet.snapshot), false, 1280, 800, theme)
					one.do(chromedp.Navigate(one.base + want.path))
					one.until(fmt.Sprintf("document.body.innerText.includes(%q) && (document.documentElement.dataset.frozen === '' || "+
						"document.getElementById('link').textContent === 'live')", want.text))
					one.picture(picture, inDocs[picture])
					one.check()
					one.tabs()
					one.do(emulation.SetDeviceMetricsOverride(390, 844, 1, true))
					one.check()
					one.picture(picture+"-small", false)
					one.quiet()
				})
			}
		}
	}
}

// tabs presses Tab: each time something else has the focus, and shows it.
func (one *tab) tabs() {
	one.t.Helper()
	one.do(chromedp.Evaluate("document.activeElement.blur()", nil))
	reached := 0
	for last := ""; reached < 12; reached++ {
		var now struct {
			Element string
			Seen    bool
		}
		one.do(chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(`(() => { const at = document.activeElement; return {element: at.outerHTML.slice(0, 200),
			seen: getComputedStyle(at).outlineStyle !== 'none'}; })()`, &now))
		if strings.HasPrefix(now.Element, "<body") {
			break // it has been everywhere
		}
		if now.Element == last || !now.Seen {
			one.t.Errorf("after Tab, the focus is at %s, and seen: %t", now.Element, now.Seen)
		}
		last = now.Element
	}
	if reached < 7 { // the way to the content, five views, and the theme
		one.t.Errorf("Tab reaches only %d elements", reached)
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
	one := open(t, source, false, 1280, 800, "light")
	changed, server := fleettest.Quarantined(t, 40)
	one.do(chromedp.Navigate(one.base))
	one.until(state(server) + " === 'available'")
	one.do(chromedp.Evaluate(`window.stays = true; document.querySelector('[data-server="metal3-system/`+server+`"]').focus()`, nil))
	source.Change(changed, "")
	one.until(state(server) + " === 'quarantined' && document.querySelector('.moves').innerText.includes('" + server + " available')")
	one.until(fmt.Sprintf(`document.querySelector('nav .broken').innerText === '%d'`, problems(changed)))
	one.until(`window.stays && document.activeElement.dataset.server === 'metal3-system/` + server + `'`)
	source.Change(fleettest.New(60), "reading machines in the management cluster, connection refused")
	one.until(`document.body.innerText.includes('60 servers') && document.querySelectorAll('.rack').length === 3`)
	one.until(`document.querySelector('.notice').innerText.includes('connection refused') && window.stays`)
	source.Change(fleettest.New(20), "")
	one.until(`document.body.innerText.includes('20 servers') && document.querySelectorAll('.rack').length === 1`)
	one.until(`!document.querySelector('.notice')`)
	one.quiet()

	one.do(chromedp.Navigate(one.base + "capacity"))
	one.until(`document.querySelectorAll('.plots path').length > 4`)
	one.check()
	one.quiet()
}

// TestFilter: a filter needs no new page, and stays in the address.
func TestFilter(t *testing.T) {
	system.Only(t)
	one := open(t, fleettest.NewChanging(fleettest.New(500)), false, 1280, 800, "light")
	tiles := `[...document.querySelectorAll('.tile')]`
	one.do(chromedp.Navigate(one.base))
	one.until(tiles + ".length === 500")
	// Not by keys: a select takes those that come late for the beginning of another word.
	one.do(chromedp.Evaluate(`(() => {
		window.stays = true
		const state = document.querySelector('select[name=state]')
		state.value = 'quarantined'
		state.dispatchEvent(new Event('change', {bubbles: true}))
	})()`, nil))
	one.until(tiles + ".every((tile) => tile.dataset.state === 'quarantined') && location.search === '?state=quarantined' && window.stays")
	one.do(chromedp.SendKeys("input[name=text]", "server-0209\r", chromedp.ByQuery))
	one.until(tiles + ".length === 1 && window.stays && document.querySelector('.shown').innerText === '1 of 500 servers'")
	one.do(chromedp.Reload())
	one.until(tiles + ".length === 1 && document.querySelector('input[name=text]').value === 'server-0209'")
	one.do(chromedp.Click(".tile", chromedp.ByQuery))
	one.until("document.querySelector('h1').innerText === 'server-0209' && document.body.innerText.includes('is quarantined')")
	one.do(chromedp.Click("nav a", chromedp.ByQuery))
	one.until(tiles + ".length === 500")
	one.do(chromedp.Click("#theme", chromedp.ByQuery), chromedp.Click("#theme", chromedp.ByQuery))
	one.until("document.documentElement.dataset.theme === 'dark'")
	one.check()
	one.do(chromedp.Reload())
	one.until("document.documentElement.dataset.theme === 'dark' && document.getElementById('theme').textContent === 'Theme: dark'")
	one.do(chromedp.Evaluate("localStorage.clear()", nil))
	one.quiet()
}

// TestLargeFleet opens 10,000 servers, and says how long it takes.
func TestLargeFleet(t *testing.T) {
	system.Only(t)
	source := fleettest.NewChanging(fleettest.New(10_000))
	one := open(t, source, false, 1280, 800, "light")
	changed, server := fleettest.Quarantined(t, 10_000)
	one.do(chromedp.Navigate(one.base))
	one.until("document.querySelectorAll('.rack').length === 500 && performance.getEntriesByName('first-contentful-paint').length > 0")
	var timing struct{ Paint, Load, Heap, Elements float64 }
	one.do(chromedp.Evaluate(`({paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,
		load: performance.getEntriesByType('navigation')[0].loadEventEnd, heap: performance.memory.usedJSHeapSize / 2 ** 20,
		elements: document.querySelectorAll('*').length})`, &timing))
	t.Logf("10,000 servers: first paint after %.0f ms, loaded after %.0f ms, %.0f elements, %.1f MiB of JavaScript", timing.Paint, timing.Load,
		timing.Elements, timing.Heap)
	one.check()
	one.picture("10000-fleet-light", false)
	source.Change(changed, "")
	one.until("document.querySelector('.moves').innerText.includes('" + server + "')")
	one.quiet()
}
