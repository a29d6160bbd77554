// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

const token = "token"

func get(t *testing.T, handler http.Handler, target string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, target, nil)
	request.Host = "127.0.0.1:8042"
	if change != nil {
		change(request)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

func TestAccess(t *testing.T) {
	screen := New(view.Still(fleettest.New(40)), Options{Token: token, Still: true})
	for name, tc := range map[string]struct {
		target string
		change func(*http.Request)
		want   int
		reason string
	}{
		"page":      {target: "/token/", want: 200, reason: "the token is in the path"},
		"no slash":  {target: "/token", want: 301, reason: "links are below the token"},
		"no token":  {target: "/", want: 403, reason: "who does not know the token sees nothing"},
		"wrong":     {target: "/tokem/", want: 403, reason: "another token"},
		"prefix":    {target: "/token2/", want: 403, reason: "the token is a whole element"},
		"static":    {target: "/static/style.css", want: 403, reason: "not even a style without the token"},
		"style":     {target: "/token/static/style.css", want: 200, reason: "an embedded file"},
		"folder":    {target: "/token/static/", want: 404, reason: "folders are not listed"},
		"outside":   {target: "/token/static/../screen.go", want: 404, reason: "only what is embedded"},
		"nowhere":   {target: "/token/nowhere", want: 404, reason: "no such view"},
		"fleet":     {target: "/token/fleet", want: 404, reason: "a page has one address"},
		"server":    {target: "/token/server/metal3-system/server-0000", want: 200, reason: "a server"},
		"no server": {target: "/token/server/metal3-system/server-9999", want: 404, reason: "no such server"},
		"half":      {target: "/token/server/metal3-system", want: 404, reason: "a server has a namespace and a name"},
		"localhost": {target: "/token/", change: func(r *http.Request) { r.Host = "localhost:8042" }, want: 200, reason: "this machine"},
		"IPv6":      {target: "/token/", change: func(r *http.Request) { r.Host = "[::1]:8042" }, want: 200, reason: "this machine"},
		"rebinding": {target: "/token/", change: func(r *http.Request) { r.Host = "evil.example.com:8042" }, want: 403,
			reason: "a name that leads to a loopback address"},
		"elsewhere": {target: "/token/", change: func(r *http.Request) { r.Host = "192.0.2.1" }, want: 403, reason: "not this machine"},
		"post":      {target: "/token/", change: func(r *http.Request) { r.Method = http.MethodPost }, want: 405, reason: "it writes nothing"},
		"delete":    {target: "/token/", change: func(r *http.Request) { r.Method = http.MethodDelete }, want: 405, reason: "it writes nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := get(t, screen, tc.target, tc.change)
			if answer.Code != tc.want {
				t.Errorf("status %d, want %d: %s", answer.Code, tc.want, tc.reason)
			}
			for header, value := range headers {
				if answer.Header().Get(header) != value {
					t.Errorf("%s is %q", header, answer.Header().Get(header))
				}
			}
			if answer.Code == 403 && strings.Contains(answer.Body.String(), "/"+token) {
				t.Errorf("it tells the token: %s", answer.Body)
			}
		})
	}
}

// TestPages: each view is complete without a script, has one main heading, and nothing that its policy forbids.
func TestPages(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son[a-z]+=|https?://`)
	for size, servers := range map[string]int{"large": 40, "tiles": 500, "dots": 2000} {
		screen := New(view.Still(fleettest.New(servers)), Options{Token: token, Still: true})
		for target, want := range map[string]string{
			"/token/": fmt.Sprintf("%d servers", servers), "/token/?type=cpu&state=available&rack=r003": "of " + fmt.Sprint(servers) + " servers",
			"/token/?text=nowhere": "none is as the filter says", "/token/capacity": "Quota of servers",
			"/token/pending": "and 7 like it: default/training-1",
			"/token/issues":  "is quarantined", "/token/server/metal3-system/server-0014": "its node is expected in",
		} {
			t.Run(size+target, func(t *testing.T) {
				content := get(t, screen, target, nil).Body.String()
				if !strings.Contains(content, want) {
					t.Errorf("there is no %q in %s", want, content)
				}
				if found := forbidden.FindString(content); found != "" {
					t.Errorf("there is a %q", found)
				}
				if headings := strings.Count(content, "<h1"); headings != 1 {
					t.Errorf("there are %d main headings", headings)
				}
			})
		}
	}
}

// TestCallersPage: the page has the issue that is read apart, in the words of preflight.
func TestCallersPage(t *testing.T) {
	snapshot := fleettest.New(40)
	snapshot.ReadChecks(t.Context(), fake.NewClientBuilder().WithScheme(view.Scheme()).WithObjects(env.OpenWebhook()...).Build())
	screen := New(view.Still(snapshot), Options{Token: token, Still: true})
	content := get(t, screen, "/token/issues", nil).Body.String()
	if !strings.Contains(content, "every pod of the cluster can ask the webhook") {
		t.Errorf("it is not in %s", content)
	}
}

// TestHostile: names and messages of others are text.
func TestHostile(t *testing.T) {
	const hostile = `"><script>alert(1)</script>`
	snapshot := fleettest.New(40)
	for i := range snapshot.Management.Hosts {
		host := &snapshot.Management.Hosts[i]
		host.Labels["rack"] = hostile
		host.Status.ErrorMessage = hostile
		host.Status.Provisioning.State = hostile
	}
	for i := range snapshot.Management.Machines {
		machine := &snapshot.Management.Machines[i]
		machine.Status.NodeName, machine.Status.Phase = hostile, v1alpha1.MachinePhase(hostile)
		machine.Status.Progress = &v1alpha1.MachineProgress{Description: hostile}
		for n := range machine.Status.Conditions {
			machine.Status.Conditions[n].Message = hostile
		}
	}
	for i := range snapshot.Management.TenantClusters {
		snapshot.Management.TenantClusters[i].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPoolsSynced,
			Status: metav1.ConditionFalse, Message: hostile}}
	}
	snapshot.Missing = []view.Missing{{Cluster: hostile, Resource: hostile}}
	screen := New(fleettest.NewChanging(snapshot), Options{Token: token})
	screen.update()
	for _, target := range []string{"/token/", "/token/?text=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&state=%22%3E%3Cscript%3E", "/token/capacity",
		"/token/pending", "/token/issues", "/token/server/metal3-system/server-0014"} {
		content := get(t, screen, target, nil).Body.String()
		if strings.Contains(content, "<script>") {
			t.Errorf("%s has a script of somebody else", target)
		}
		if !strings.Contains(content, "&lt;script&gt;alert") {
			t.Errorf("%s does not show the text", target)
		}
	}
}

// follower reads the events of a page.
type follower struct {
	t     *testing.T
	lines *bufio.Reader
	close func()
}

func follow(t *testing.T, server *httptest.Server, target, have string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	address := server.URL + target
	if have != "" {
		address += "?have=" + have
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("the stream is %s, status %d", got, answer.StatusCode)
	}
	return &follower{t, bufio.NewReader(answer.Body), cancel}
}

// next returns the next event, which is empty for a comment.
func (f *follower) next() (told event) {
	f.t.Helper()
	line, err := f.lines.ReadString('\n')
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.lines.ReadString('\n'); err != nil {
		f.t.Fatal(err)
	}
	if content, is := strings.CutPrefix(line, "data: "); is {
		if err := json.Unmarshal([]byte(content), &told); err != nil {
			f.t.Fatal(err)
		}
	}
	return told
}

var sumOf = regexp.MustCompile(`data-sum="([^"]+)"`)

// TestStream: who has the page is told what changes, and only that.
func TestStream(t *testing.T) {
	source := fleettest.NewChanging(fleettest.New(500))
	screen := New(source, Options{Token: token})
	server := httptest.NewServer(screen)
	t.Cleanup(server.Close) // after the streams have ended
	sum := sumOf.FindStringSubmatch(get(t, screen, "/token/", nil).Body.String())[1]
	has, hasNot := follow(t, server, "/token/", sum), follow(t, server, "/token/", "")
	if told := has.next(); len(told.Parts) > 0 || len(told.Slots) > 0 {
		t.Errorf("who has the page is told %d parts of it", len(told.Parts))
	}
	if told := hasNot.next(); len(told.Parts) < 25 || len(told.Slots["main"]) != 25 {
		t.Errorf("who has nothing is told %d parts, and %d racks", len(told.Parts), len(told.Slots["main"]))
	}
	changed, name := fleettest.Quarantined(t, 500)
	source.Change(changed, "")
	screen.update()
	for _, viewer := range []*follower{has, hasNot} {
		told := viewer.next()
		racks := 0
		for part, html := range told.Parts {
			if strings.HasPrefix(part, "rack-") {
				racks++
				if !strings.Contains(html, name) {
					t.Errorf("rack %s is told, which does not have %s", part, name)
				}
			}
		}
		if racks != 1 || len(told.Slots) > 0 || !strings.Contains(told.Parts["moves"], name) ||
			!strings.Contains(told.Parts["summary"], "<b>6</b> quarantined") {
			t.Errorf("the change of one server is told as %d racks, slots %v and %d parts", racks, told.Slots, len(told.Parts))
		}
	}
	// What becomes old by itself is not told.
	later := *changed
	later.Time = metav1.NewTime(fleettest.Now.Add(time.Second))
	source.Change(&later, "")
	screen.update()
	if told := has.next(); len(told.Parts) > 0 {
		t.Errorf("a second later %d parts are told: %v", len(told.Parts), told)
	}
}

// TestSlowViewer: a viewer that does not read gets the newest state when it does, and not each one before.
func TestSlowViewer(t *testing.T) {
	source := fleettest.NewChanging(fleettest.New(40))
	screen := New(source, Options{Token: token})
	server := httptest.NewServer(screen)
	t.Cleanup(server.Close) // after the streams have ended
	viewer := follow(t, server, "/token/", "")
	viewer.next()
	changed, name := fleettest.Quarantined(t, 40)
	source.Change(changed, "")
	screen.update()
	if told := viewer.next(); !strings.Contains(told.Parts["moves"], name) {
		t.Fatalf("the change is not told: %v", told)
	}
	before := screen.present()
	for range 100 { // nothing is kept of these for the viewer
		source.Change(changed, "")
		screen.update()
	}
	select {
	case <-before.over:
	default:
		t.Error("a version that is over is waited for")
	}
}

// TestViewers: streams are bounded, and one that ends makes room.
func TestViewers(t *testing.T) {
	screen := New(fleettest.NewChanging(fleettest.New(5)), Options{Token: token})
	server := httptest.NewServer(screen)
	t.Cleanup(server.Close) // after the streams have ended
	var all []*follower
	for range maxViewers {
		follower := follow(t, server, "/token/", "")
		follower.next()
		all = append(all, follower)
	}
	stream := func(r *http.Request) { r.Header.Set("Accept", "text/event-stream") }
	if answer := get(t, screen, "/token/", stream); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("one stream too many: status %d", answer.Code)
	}
	all[0].close()
	screen.viewers <- struct{}{} // when the stream has ended, there is room
	<-screen.viewers
}

// TestPagesKept: who asks for ever new pages does not fill the memory.
func TestPagesKept(t *testing.T) {
	screen := New(fleettest.NewChanging(fleettest.New(5)), Options{Token: token})
	for i := range 10 * maxPages {
		get(t, screen, fmt.Sprintf("/token/?text=%d", i), nil)
	}
	if kept := len(screen.present().pages); kept > maxPages {
		t.Errorf("%d pages are kept", kept)
	}
}

// advance waits until something waits for the time, and moves it.
func advance(fake *clocktesting.FakeClock, elapsed time.Duration) {
	for !fake.HasWaiters() {
		runtime.Gosched()
	}
	fake.Step(elapsed)
}

// TestRun: changes that come together make one version, and without any there is a new one from time to time.
func TestRun(t *testing.T) {
	source := fleettest.NewChanging(fleettest.New(5))
	fake := clocktesting.NewFakeClock(fleettest.Now)
	screen := New(source, Options{Token: token, Clock: fake})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { screen.Run(ctx); close(ended) }()
	first := screen.present()
	source.Change(fleettest.New(6), "")
	<-first.over
	second := screen.present()
	for i := range 10 {
		source.Change(fleettest.New(7+i), "")
	}
	select {
	case <-second.over:
		t.Error("a version was made before its time")
	default:
	}
	advance(fake, interval)
	<-second.over
	third := screen.present()
	if len(third.servers) != 16 {
		t.Errorf("%d servers are shown, want the newest state with 16", len(third.servers))
	}
	advance(fake, interval)
	advance(fake, refresh)
	<-third.over
	cancel()
	<-ended
}

// TestLost: a cluster that does not answer is named, and what it had is still there.
func TestLost(t *testing.T) {
	source := fleettest.NewChanging(fleettest.New(5))
	source.Change(fleettest.New(5), "reading machines in the management cluster, connection refused")
	content := get(t, New(source, Options{Token: token}), "/token/", nil).Body.String()
	if !strings.Contains(content, source.Lost()) || !strings.Contains(content, "5 servers") {
		t.Errorf("it is not said: %s", content)
	}
}

// TestHistory: the past is bounded, and goes back to the start.
func TestHistory(t *testing.T) {
	h := history{every: time.Second}
	const seconds = 100_000
	for i := range seconds {
		h.add(sample{time: fleettest.Now.Add(time.Duration(i) * time.Second), all: counts{int32(i % 7), 1}})
	}
	last := len(h.samples) - 1
	switch {
	case len(h.samples) > maxSamples || len(h.samples) < maxSamples/3:
		t.Errorf("%d samples are kept", len(h.samples))
	case !h.samples[0].time.Equal(fleettest.Now) || !h.samples[last].time.Equal(fleettest.Now.Add((seconds-1)*time.Second)):
		t.Errorf("they are from %s to %s", h.samples[0].time, h.samples[last].time)
	}
	drawn := h.plot("all", func(sample sample) counts { return sample.all })
	if drawn.Top != 7 || len(drawn.Areas) != 2 || !strings.HasPrefix(drawn.Areas[0].Path, "M0 ") ||
		!strings.Contains(drawn.Areas[1].Path, "H600") {
		t.Errorf("drawn %+v", drawn)
	}
}

// TestEveryState: each state that the API and the inventory know has a sign.
func TestEveryState(t *testing.T) {
	for _, state := range []view.State{
		view.State(v1alpha1.MachinePending), view.State(v1alpha1.MachineClaiming), view.State(v1alpha1.MachineClaimed),
		view.State(v1alpha1.MachineProvisioning), view.State(v1alpha1.MachineProvisioned), view.State(v1alpha1.MachineJoined),
		view.State(v1alpha1.MachineFailed), view.State(v1alpha1.MachineReleasing), view.State(inventory.StateAvailable),
		view.State(inventory.StateClaimed), view.State(inventory.StateError), view.State(inventory.StateQuarantined),
		view.State(inventory.StateUnavailable),
	} {
		if lookOf(state).Sign == "?" {
			t.Errorf("%s has no sign", state)
		}
	}
}

// BenchmarkUpdate makes a version of a fleet of 10,000 servers, and its first page, as after each change.
func BenchmarkUpdate(b *testing.B) {
	screen := New(fleettest.NewChanging(fleettest.New(10_000)), Options{Token: token})
	b.Run("version", func(b *testing.B) {
		for b.Loop() {
			screen.update()
		}
	})
	for _, name := range []string{"", "?state=available", "?type=cpu&tenant=acme/acme", "capacity", "pending", "issues"} {
		b.Run("page-"+name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				screen.present().pages = map[page]*rendered{}
				b.StartTimer()
				request := httptest.NewRequest(http.MethodGet, "/token/"+name, nil)
				request.Host = "127.0.0.1"
				recorder := httptest.NewRecorder()
				screen.ServeHTTP(recorder, request)
				b.ReportMetric(float64(recorder.Body.Len()), "page-bytes")
			}
		})
	}
}
