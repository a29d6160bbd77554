// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
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
	b.server = httptest.NewServer(callers.Limit(leaving, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.entered <- struct{}{}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		<-b.answer
	})))
	t.Cleanup(b.server.Close)
	t.Cleanup(leave)
	return b
}

func (b *blocked) ask(ctx context.Context, t *testing.T) chan *http.Response {
	t.Helper()
	answered := make(chan *http.Response, 1)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.server.URL, strings.NewReader("{}"))
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
	callers.waiting = make(chan struct{}, 2)
	b := newBlocked(t, callers)
	first := b.ask(t.Context(), t)
	<-b.entered
	second := b.ask(t.Context(), t)
	for len(callers.waiting) < 2 {
		runtime.Gosched()
	}
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
	for len(callers.waiting) < 2 {
		runtime.Gosched()
	}
	stop()
	<-second
	for len(callers.waiting) > 1 {
		runtime.Gosched()
	}
	b.answer <- struct{}{}
	<-first
}

// TestSlowCaller: a client that announces a body and does not send it has its place for five seconds.
func TestSlowCaller(t *testing.T) {
	callers, err := NewCallers("", nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := newBlocked(t, callers)
	connection, err := net.Dial("tcp", b.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	<-b.entered
	b.answer <- struct{}{} // the body is over, by the deadline
	response := b.ask(t.Context(), t)
	<-b.entered
	b.answer <- struct{}{}
	if r := <-response; r.StatusCode != http.StatusOK {
		t.Errorf("the next: %s", r.Status)
	}
}
