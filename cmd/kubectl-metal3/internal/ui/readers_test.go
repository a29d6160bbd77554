// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/fleettest"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// tokens is an Access. The user of a token is what is before its dash.
type tokens struct {
	mu sync.Mutex
	// servers is how many each token reads.
	servers map[string]int
	// followed is how often each token follows each namespace now.
	followed map[string]int
}

func newTokens() *tokens {
	return &tokens{servers: map[string]int{"ann": 5, "ann-2": 5, "bob": 7, "cid": 9}, followed: map[string]int{}}
}

// Check implements Access.
func (a *tokens) Check(_ context.Context, token string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case token == "down":
		return "", errors.New("connection refused")
	case token != "late" && a.servers[token] == 0:
		return "", apierrors.NewUnauthorized("wrong token")
	}
	user, _, _ := strings.Cut(token, "-")
	return user, nil
}

// Follow implements Access.
func (a *tokens) Follow(ctx context.Context, token, namespace string) (Source, Options, error) {
	if _, err := a.Check(ctx, token); err != nil || token == "late" {
		return nil, Options{}, fmt.Errorf("reading, %w", apierrors.NewUnauthorized("expired"))
	}
	a.count(token, namespace, 1)
	context.AfterFunc(ctx, func() { a.count(token, namespace, -1) })
	return fleettest.NewChanging(fleettest.New(a.servers[token])), Options{}, nil
}

func (a *tokens) count(token, namespace string, change int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.followed[token+"/"+namespace] += change
}

// refuse has a token expire.
func (a *tokens) refuse(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.servers[token] = 0
}

// differ returns an error if other fleets are followed than these.
func (a *tokens) differ(want ...string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var got []string
	for name, followed := range a.followed {
		if followed > 0 {
			got = append(got, name)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		return fmt.Errorf("%q are followed, want %q", got, want)
	}
	return nil
}

func (a *tokens) expect(t *testing.T, want ...string) {
	t.Helper()
	poll.Eventually(t, "all others are given up", func(context.Context) error { return a.differ(want...) })
}

func bearing(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func newReaders(t *testing.T, most int) (*Readers, *tokens, *clocktesting.FakeClock) {
	access, fake := newTokens(), clocktesting.NewFakeClock(fleettest.Now)
	return NewReaders(t.Context(), access, most, fake), access, fake
}

// TestReaders: a page is for who has a token that the API server accepts, and is of what that token may read.
func TestReaders(t *testing.T) {
	readers, _, _ := newReaders(t, 10)
	header := func(values ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Authorization"] = values }
	}
	for name, tc := range map[string]struct {
		target, method string
		change         func(*http.Request)
		want           int
		says, reason   string
	}{
		"ann":        {target: "/", change: bearing("ann"), want: 200, says: "5 servers", reason: "what the token may read"},
		"bob":        {target: "/", change: bearing("bob"), want: 200, says: "7 servers", reason: "another token reads another fleet"},
		"lower case": {target: "/", change: header("bearer ann"), want: 200, says: "5 servers", reason: "RFC 7235 says so"},
		"host": {target: "/", change: func(r *http.Request) { bearing("ann")(r); r.Host = "fleet.example.com" }, want: 200, says: "5 servers",
			reason: "the proxy has a name, and no other page has the token"},
		"namespace": {target: "/namespaces/acme/", change: bearing("ann"), want: 200, says: `href="/namespaces/acme/capacity"`,
			reason: "links stay in the namespace"},
		"no slash":     {target: "/namespaces/acme", change: bearing("ann"), want: 301, says: "/namespaces/acme/", reason: "links are below it"},
		"view":         {target: "/namespaces/acme/issues", change: bearing("ann"), want: 200, says: "Issues", reason: "each view is there"},
		"no namespace": {target: "/namespaces/", change: bearing("ann"), want: 404, reason: "it has no name"},
		"wrong name":   {target: "/namespaces/A..B/", change: bearing("ann"), want: 404, reason: "no namespace has that name"},
		"style":        {target: "/static/style.css", change: bearing("ann"), want: 200, reason: "an embedded file"},
		"no token":     {target: "/", want: 401, says: "header Authorization", reason: "it is not known who reads"},
		"static":       {target: "/static/style.css", want: 401, reason: "not even a style without a token"},
		"empty":        {target: "/", change: header("Bearer "), want: 401, reason: "client-go would ask without credentials"},
		"two words":    {target: "/", change: header("Bearer  ann"), want: 401, reason: "the API server would read an empty token"},
		"basic":        {target: "/", change: header("Basic YW5uOmE="), want: 401, reason: "the API server knows no passwords"},
		"two":          {target: "/", change: header("Bearer ann", "Bearer bob"), want: 401, reason: "it is not clear who reads"},
		"refused":      {target: "/", change: bearing("eve"), want: 401, says: "sign in again", reason: "the API server does not know it"},
		"late":         {target: "/", change: bearing("late"), want: 401, says: "sign in again", reason: "it expired after it was checked"},
		"down":         {target: "/", change: bearing("down"), want: 502, says: "connection refused", reason: "the API server does not answer"},
		"post":         {target: "/", method: http.MethodPost, change: bearing("ann"), want: 405, reason: "it writes nothing"},
		"delete":       {target: "/namespaces/acme/", method: http.MethodDelete, change: bearing("ann"), want: 405, reason: "it writes nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := get(t, readers, tc.target, func(r *http.Request) {
				if tc.method != "" {
					r.Method = tc.method
				}
				if tc.change != nil {
					tc.change(r)
				}
			})
			if answer.Code != tc.want || !strings.Contains(answer.Body.String(), tc.says) {
				t.Errorf("%s: status %d, want %d and %q: %s", tc.reason, answer.Code, tc.want, tc.says, answer.Body)
			}
			if (answer.Code == 401) != (answer.Header().Get("WWW-Authenticate") == "Bearer") {
				t.Errorf("WWW-Authenticate is %q", answer.Header().Get("WWW-Authenticate"))
			}
			for header, value := range headers {
				if answer.Header().Get(header) != value {
					t.Errorf("%s is %q", header, answer.Header().Get(header))
				}
			}
			if answer.Header().Get("Set-Cookie") != "" {
				t.Error("it sets a cookie")
			}
		})
	}
}

// proxied is a server with the readers behind a proxy that knows the token of its user.
func proxied(t *testing.T, readers *Readers, token string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bearing(token)(r)
		readers.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

// TestReadersMakeRoom: who has no page open makes room for others, the one that looked first before; who has one open does not.
func TestReadersMakeRoom(t *testing.T) {
	readers, access, fake := newReaders(t, 2)
	get(t, readers, "/", bearing("ann"))
	fake.Step(1)
	get(t, readers, "/", bearing("bob"))
	get(t, readers, "/", bearing("eve")) // is refused, and takes no place
	access.expect(t, "ann/", "bob/")
	get(t, readers, "/namespaces/acme/", bearing("cid"))
	access.expect(t, "bob/", "cid/acme")
	viewer := follow(t, proxied(t, readers, "bob"), "/", "")
	viewer.next()
	fake.Step(1)
	get(t, readers, "/", bearing("ann"))
	access.expect(t, "ann/", "bob/")
	other := follow(t, proxied(t, readers, "ann"), "/", "")
	other.next()
	if answer := get(t, readers, "/", bearing("cid")); answer.Code != http.StatusServiceUnavailable ||
		!strings.Contains(answer.Body.String(), "2 fleets are being looked at") {
		t.Errorf("one reader too many: status %d, %s", answer.Code, answer.Body)
	}
	other.close()
	poll.Eventually(t, "the page that is closed makes room", func(context.Context) error {
		if answer := get(t, readers, "/", bearing("cid")); answer.Code != http.StatusOK {
			return fmt.Errorf("status %d, %s", answer.Code, answer.Body)
		}
		return nil
	})
	access.expect(t, "bob/", "cid/")
}

// TestReadersShare: who looks at more than others makes room for them, too, and takes no place of who has fewer.
func TestReadersShare(t *testing.T) {
	readers, access, fake := newReaders(t, 3)
	look := func(token, target string) {
		t.Helper()
		follow(t, proxied(t, readers, token), target, "").next()
		fake.Step(1)
	}
	look("ann", "/")
	look("bob", "/")
	look("bob", "/namespaces/acme/")
	refused := func(token string) {
		t.Helper()
		if answer := get(t, readers, "/", bearing(token)); answer.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d, %s", token, answer.Code, answer.Body)
		}
	}
	refused("ann-2") // would leave bob with fewer than ann
	look("cid", "/")
	access.expect(t, "ann/", "bob/acme", "cid/")
	refused("bob")
}

// TestReadersNewToken: a proxy that has a new token of a user takes no second place, unless the page of the first is open.
func TestReadersNewToken(t *testing.T) {
	readers, access, _ := newReaders(t, 10)
	get(t, readers, "/", bearing("ann"))
	get(t, readers, "/namespaces/acme/", bearing("ann"))
	get(t, readers, "/", bearing("ann-2"))
	access.expect(t, "ann-2/", "ann/acme")
	follow(t, proxied(t, readers, "ann-2"), "/", "").next()
	get(t, readers, "/", bearing("ann"))
	access.expect(t, "ann-2/", "ann/", "ann/acme")
}

// TestReadersExpire: a stream ends when the API server does not accept its token any more, and there is no page for the token then.
func TestReadersExpire(t *testing.T) {
	readers, access, fake := newReaders(t, 2)
	viewer := follow(t, proxied(t, readers, "ann"), "/", "")
	viewer.next()
	follow(t, proxied(t, readers, "bob"), "/", "").next()
	access.refuse("ann")
	stepUntil(t, fake, access, "bob/")
	if _, err := io.ReadAll(viewer.lines); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if answer := get(t, readers, "/", bearing("ann")); answer.Code != http.StatusUnauthorized {
		t.Errorf("an expired token: status %d", answer.Code)
	}
}

// TestReadersIdle: a fleet at which nobody looks is not followed for long, and one with an open page is.
func TestReadersIdle(t *testing.T) {
	readers, access, fake := newReaders(t, 2)
	get(t, readers, "/", bearing("ann"))
	viewer := follow(t, proxied(t, readers, "bob"), "/", "")
	viewer.next()
	began := fake.Now()
	stepUntil(t, fake, access, "bob/")
	if elapsed := fake.Since(began); elapsed < lingering {
		t.Errorf("it is given up after %s", elapsed)
	}
}

// stepUntil lets minutes pass until the fleets that are followed are these.
func stepUntil(t *testing.T, fake *clocktesting.FakeClock, access *tokens, want ...string) {
	t.Helper()
	poll.Eventually(t, "all others are given up", func(context.Context) error {
		err := access.differ(want...)
		if err != nil {
			fake.Step(recheck)
		}
		return err
	})
}

// TestReadersEnd: with the program, everything ends that is followed.
func TestReadersEnd(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	access := newTokens()
	readers := NewReaders(ctx, access, 2, clocktesting.NewFakeClock(fleettest.Now))
	get(t, readers, "/", bearing("ann"))
	access.expect(t, "ann/")
	end()
	access.expect(t)
}
