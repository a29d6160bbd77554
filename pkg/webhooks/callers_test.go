// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

func TestCallersFile(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{empty, empty + ".missing"} {
		if _, err := NewCallers(file, nil, 1); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v", file, err)
		}
	}
}

// blocked answers requests when it is told to.
type blocked struct {
	server          *httptest.Server
	entered, answer chan struct{}
	leave           context.CancelFunc
}

func newBlocked(t *testing.T, callers *Callers) *blocked {
	t.Helper()
	leaving, leave := context.WithCancel(t.Context())
	b := &blocked{entered: make(chan struct{}), answer: make(chan struct{}), leave: leave}
	b.server = httptest.NewServer(callers.Limit(leaving, http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) {
		b.entered <- struct{}{}
		<-b.answer
	})))
	t.Cleanup(b.server.Close)
	t.Cleanup(leave)
	return b
}

func (b *blocked) ask(ctx context.Context, t *testing.T) chan *http.Response {
	t.Helper()
	return b.send(ctx, t, "{}")
}

func (b *blocked) send(ctx context.Context, t *testing.T, body string) chan *http.Response {
	t.Helper()
	answered := make(chan *http.Response, 1)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.server.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close() // only its status is looked at
		}
		answered <- response
	}()
	return answered
}

// TestCallersWait: one is answered, one waits, and the next is refused at once. The one that waits is answered then.
func TestCallersWait(t *testing.T) {
	callers, err := NewCallers("", nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	callers.turns.limit = 1
	b := newBlocked(t, callers)
	first := b.ask(t.Context(), t)
	<-b.entered
	second := b.ask(t.Context(), t)
	awaitWaiting(t, &callers.turns, 1)
	if third := <-b.ask(t.Context(), t); third.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the third: %s", third.Status)
	}
	select {
	case <-b.entered:
		t.Error("two are answered at once")
	default:
	}
	b.leave()
	b.answer <- struct{}{}
	if response := <-first; response.StatusCode != http.StatusOK || response.Close {
		t.Errorf("the first: %s", response.Status)
	}
	<-b.entered
	b.answer <- struct{}{}
	if response := <-second; response.StatusCode != http.StatusOK {
		t.Errorf("the second: %s", response.Status)
	}
	// A client that keeps its connection would not go to another replica.
	last := b.ask(t.Context(), t)
	<-b.entered
	b.answer <- struct{}{}
	if response := <-last; !response.Close {
		t.Error("while the process is leaving, the connection is kept")
	}
}

// TestCallersGoAway: a client that has gone no longer waits.
func TestCallersGoAway(t *testing.T) {
	callers, err := NewCallers("", nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := newBlocked(t, callers)
	first := b.ask(t.Context(), t)
	<-b.entered
	ctx, stop := context.WithCancel(t.Context())
	second := b.ask(ctx, t)
	awaitWaiting(t, &callers.turns, 1)
	stop()
	<-second
	awaitWaiting(t, &callers.turns, 0)
	b.answer <- struct{}{}
	<-first
}

// awaitWaiting waits until so many requests wait.
func awaitWaiting(t *testing.T, turns *turns, want int) {
	t.Helper()
	poll.Eventually(t, "requests wait", func(context.Context) error {
		turns.lock.Lock()
		defer turns.lock.Unlock()
		if turns.waiting != want {
			return fmt.Errorf("%d wait, want %d", turns.waiting, want)
		}
		return nil
	})
}

// silent opens a connection that announces a body of that length, and sends the beginning of it.
func (b *blocked) silent(t *testing.T, length int, beginning string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", b.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if _, err := fmt.Fprintf(connection, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", length, beginning); err != nil {
		t.Fatal(err)
	}
	return connection
}

// TestSilentCallers: clients announce bodies and send them slowly, or not at all. Others are answered all the same, and those that have
// been silent longest are dropped when there are too many.
func TestSilentCallers(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		beginning string
		// silent connections, and how many of them are dropped at least.
		silent, dropped int
	}{
		"few":    {reason: "they take none of the places", beginning: "{", silent: 3},
		"many":   {reason: "there is no room for so many", beginning: "{", silent: 50, dropped: 46},
		"large":  {reason: "there is no room for so many bytes", beginning: strings.Repeat("x", 50<<10), silent: 3, dropped: 1},
		"silent": {reason: "headers alone take no more than others", silent: 50, dropped: 46},
	} {
		t.Run(name, func(t *testing.T) {
			callers, err := NewCallers("", nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			callers.bodies.readers, callers.bodies.bytes = 4, 128<<10
			b := newBlocked(t, callers)
			var dropped atomic.Int64
			for range tc.silent {
				answer := bufio.NewReader(b.silent(t, 1<<20, tc.beginning))
				go func() {
					if line, _ := answer.ReadString('\n'); strings.HasPrefix(line, "HTTP/1.1 429 ") {
						dropped.Add(1)
					}
				}()
			}
			poll.Eventually(t, "all silent ones have come", func(context.Context) error {
				callers.bodies.lock.Lock()
				defer callers.bodies.lock.Unlock()
				if reading, gone := len(callers.bodies.reading), int(dropped.Load()); reading+gone < tc.silent {
					return fmt.Errorf("%d are being read, and %d are dropped", reading, gone)
				}
				return nil
			})
			for range 5 {
				response := b.ask(t.Context(), t)
				<-b.entered
				b.answer <- struct{}{}
				if r := <-response; r == nil || r.StatusCode != http.StatusOK {
					t.Errorf("another client: %v; %s", r, tc.reason)
				}
			}
			if got := int(dropped.Load()); got < tc.dropped {
				t.Errorf("%d are dropped, want %d", got, tc.dropped)
			}
		})
	}
}

// TestBodyThatDoesNotCome: it is not waited for without an end.
func TestBodyThatDoesNotCome(t *testing.T) {
	callers, err := NewCallers("", nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	callers.timeout = time.Millisecond
	connection := newBlocked(t, callers).silent(t, 10, "{")
	if answer, err := bufio.NewReader(connection).ReadString('\n'); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
		t.Errorf("answered %q, %v", answer, err)
	}
	callers.bodies.lock.Lock()
	defer callers.bodies.lock.Unlock()
	if callers.bodies.held != 0 || len(callers.bodies.reading) != 0 {
		t.Errorf("%d bytes of it are held", callers.bodies.held)
	}
}

// TestTooLongBody: it is refused before it is complete.
func TestTooLongBody(t *testing.T) {
	callers, err := NewCallers("", nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := newBlocked(t, callers)
	connection := b.silent(t, 1<<30, "")
	go func() { _, _ = connection.Write(make([]byte, bodyLimit+1)) }()
	if answer, err := bufio.NewReader(connection).ReadString('\n'); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 413 ") {
		t.Errorf("answered %q, %v", answer, err)
	}
}

// TestTurns: sources take turns, whatever one sends, and what there is too much of is refused to the one that has most.
func TestTurns(t *testing.T) {
	turns := &turns{free: 1, limit: 6}
	if !turns.take(t.Context(), "busy") {
		t.Fatal("there is a place")
	}
	type answer struct {
		name string
		has  bool
	}
	answers := make(chan answer, 8)
	ask := func(source, name string, waiting int) {
		go func() { answers <- answer{name, turns.take(t.Context(), source)} }()
		poll.Eventually(t, name+" waits", func(context.Context) error {
			turns.lock.Lock()
			defer turns.lock.Unlock()
			if turns.waiting != waiting {
				return fmt.Errorf("%d wait", turns.waiting)
			}
			return nil
		})
	}
	for n := range 4 {
		ask("busy", fmt.Sprintf("busy-%d", n), n+1)
	}
	ask("b", "b-0", 5)
	ask("c", "c-0", 6)
	ask("b", "b-1", 6)
	if refused := <-answers; refused.has || refused.name != "busy-3" {
		t.Errorf("%+v, want that the last one of the busiest is refused", refused)
	}
	for _, want := range []string{"busy-0", "b-0", "c-0", "busy-1", "b-1", "busy-2"} {
		turns.give()
		if next := <-answers; next != (answer{want, true}) {
			t.Errorf("%+v is next, want %s", next, want)
		}
	}
	turns.give()
	if turns.free != 1 || turns.waiting != 0 || len(turns.queues) != 0 || len(turns.order) != 0 {
		t.Errorf("in the end there is %+v", turns)
	}
}

// TestConnectionIsKept: a request that takes all of its time, as one that waits may, cancels no later one of its
// connection.
func TestConnectionIsKept(t *testing.T) {
	callers, err := NewCallers("", nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	callers.timeout = 10 * time.Millisecond
	var contexts []error
	until := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	limited := callers.Limit(t.Context(), http.HandlerFunc(until))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limited.ServeHTTP(w, r)
		// The deadline of the connection comes in this time.
		while, stop := context.WithTimeout(r.Context(), 10*time.Millisecond)
		defer stop()
		<-while.Done()
		contexts = append(contexts, r.Context().Err())
	}))
	defer server.Close()
	for n := range 2 {
		reused := false
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
		ctx := httptrace.WithClientTrace(t.Context(), trace)
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // it is empty
		if reused != (n == 1) || contexts[n] != nil {
			t.Errorf("request %d: the connection was used before: %v; its context: %v", n, reused, contexts[n])
		}
	}
}
