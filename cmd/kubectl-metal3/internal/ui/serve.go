// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
)

const (
	// maxViewers is how many event streams can be open at a time.
	maxViewers = 100
	// heartbeat is how often a stream sends something, so that the server notices when a viewer is gone.
	heartbeat = 20 * time.Second
	// patience is how long a viewer may take to read.
	patience = 30 * time.Second
)

// headers are the headers of all answers. A page loads nothing from elsewhere, runs only our script, is in no frame,
// and stays in no cache.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
	"Vary":                         "Accept",
}

//go:embed static
var static embed.FS

// Serve answers requests until ctx ends. The streams end with ctx, too.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if server.Shutdown(late) != nil {
			server.Close()
		}
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serving, %w", err)
	}
	<-stopped
	return nil
}

// page identifies what a viewer looks at.
type page struct {
	View string
	// Name is the name of the server, with its namespace.
	Name   string
	Filter view.Filter
}

// ServeHTTP implements http.Handler.
func (s *Screen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w)
	rest, known := s.admit(r)
	switch {
	case !isLoopback(r.Host):
		// Somebody else's DNS may resolve a name to this machine.
		http.Error(w, fmt.Sprintf("this page is at a loopback address, and not at %q", r.Host), http.StatusForbidden)
	case !known:
		http.Error(w, "the address of this page has a token, which the program that serves it has printed", http.StatusForbidden)
	default:
		s.serve(w, r, rest)
	}
}

func harden(w http.ResponseWriter) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
}

// serve answers an admitted request. rest is its path below the base.
func (s *Screen) serve(w http.ResponseWriter, r *http.Request, rest string) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this page writes nothing: the method must be GET", http.StatusMethodNotAllowed)
	case rest == "":
		http.Redirect(w, r, s.base+"/", http.StatusMovedPermanently)
	case strings.HasPrefix(rest, "/static/"):
		s.serveStatic(w, r, strings.TrimPrefix(rest, "/"))
	default:
		s.servePage(w, r, rest)
	}
}

// admit returns the path after the token, and whether the request has the token.
func (s *Screen) admit(r *http.Request) (rest string, known bool) {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte("/"+first), []byte(s.base)) != 1 {
		return "", false
	}
	return strings.TrimPrefix(r.URL.Path, s.base), true
}

// isLoopback reports whether the host of a request is an address or a name that only this machine has.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && address.IsLoopback()
}

func (s *Screen) serveStatic(w http.ResponseWriter, r *http.Request, name string) {
	if info, err := fs.Stat(static, name); err != nil || info.IsDir() {
		http.NotFound(w, r)
		return
	}
	http.ServeFileFS(w, r, static, path.Clean(name))
}

func pageOf(rest string, query url.Values) (page, bool) {
	name := strings.Trim(rest, "/")
	if server, is := strings.CutPrefix(name, "server/"); is {
		return page{View: "server", Name: server}, strings.Count(server, "/") == 1
	}
	if name == "" {
		return page{View: "fleet", Filter: view.Filter{State: query.Get("state"), Type: query.Get("type"), Tenant: query.Get("tenant"),
			Rack: query.Get("rack"), Zone: query.Get("zone"), Text: query.Get("text")}}, true
	}
	_, known := views[name]
	return page{View: name}, known && name != "fleet" && name != "server"
}

func (s *Screen) servePage(w http.ResponseWriter, r *http.Request, rest string) {
	asked, known := pageOf(rest, r.URL.Query())
	if !known {
		http.NotFound(w, r)
		return
	}
	if asked.View == "whatif" {
		s.serveWhatIf(w, r)
		return
	}
	stream := r.Header.Get("Accept") == "text/event-stream"
	if asked.View == "server" && !stream {
		s.remember(r.Context(), asked.Name)
	}
	if asked.View == "capacity" && !stream {
		s.recall(r.Context())
	}
	if stream {
		s.stream(w, r, asked)
		return
	}
	shown, err := s.render(s.present(), asked)
	status := http.StatusOK
	if err == nil && shown.Gone {
		status = http.StatusNotFound
	}
	write(w, shown, err, status)
}

// write answers with a page, or with the error that there is no page.
func write(w http.ResponseWriter, shown *rendered, err error, status int) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var whole bytes.Buffer
	if err := templates.ExecuteTemplate(&whole, "layout", shown); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = whole.WriteTo(w)
}

// event is a message of a stream. Slots has the names of the parts in each slot whose list of parts has changed; Parts
// has the HTML of new and changed parts.
type event struct {
	Slots map[string][]string `json:"slots,omitempty"`
	Parts map[string]string   `json:"parts,omitempty"`
}

// stream sends a viewer the changes of a page. The request has the sum of the page that the viewer has.
func (s *Screen) stream(w http.ResponseWriter, r *http.Request, asked page) {
	select {
	case s.viewers <- struct{}{}:
		defer func() { <-s.viewers }()
	default:
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	sent, have := map[string]uint64{}, r.URL.Query().Get("have")
	for {
		now := s.present()
		shown, err := s.render(now, asked)
		if err != nil {
			return
		}
		told := shown.since(sent)
		if have == shown.Sum {
			told = event{}
		}
		have = ""
		// The recorder of a test has no deadline to set.
		_ = control.SetWriteDeadline(time.Now().Add(patience))
		if err := tell(w, told); err != nil || control.Flush() != nil {
			return
		}
		timer := s.clock.NewTimer(heartbeat)
		select {
		case <-r.Context().Done():
			timer.Stop()
			return
		case <-now.over:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// tell writes an event, or a comment if the event is empty.
func tell(w http.ResponseWriter, told event) error {
	if len(told.Slots) == 0 && len(told.Parts) == 0 {
		_, err := fmt.Fprint(w, ":\n\n")
		return err
	}
	content, err := json.Marshal(told)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "data: %s\n\n", content)
	return err
}
