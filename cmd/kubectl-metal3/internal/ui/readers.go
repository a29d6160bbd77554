// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// lingering is how long a fleet is followed after the last request for it. A hidden tab sends no requests.
	lingering = 15 * time.Minute
	// recheck is how often the API server is asked whether it still accepts a token. A stream with an expired token
	// goes on until then.
	recheck = time.Minute
	// openTime is how long a request waits for the fleet.
	openTime = 30 * time.Second
	// namespaces is the prefix of the paths that show the fleet of one namespace.
	namespaces = "/namespaces/"
)

// Access reads a cluster with the rights of a token.
type Access interface {
	// Check returns the name of the token's user; empty if the user may not ask for it. The error is the API server's
	// Unauthorized if it does not accept the token.
	Check(ctx context.Context, token string) (string, error)
	// Follow follows the cluster with the rights of the token until ctx ends, like the function Follow. It reads the
	// Machines and TenantClusters of the namespace; an empty namespace means all.
	Follow(ctx context.Context, token, namespace string) (Source, Options, error)
}

// Readers is an http.Handler that serves the page to many readers. Each request has a bearer token. Readers shows
// only what the API server lets this token read, and nothing that another token has read. A proxy in front of it
// signs people in.
type Readers struct {
	// ctx ends everything that Readers follows.
	ctx    context.Context
	access Access
	most   int
	clock  clock.Clock
	// planning has one slot for all readers: an answer takes a processor for up to half a minute.
	planning chan struct{}

	mu  sync.Mutex
	all map[place]*reader
}

// place is a token and a namespace to look at. It has only the token's sum, so the token is in no key and in no log.
type place struct {
	token     [sha256.Size]byte
	namespace string
}

// reader is a token that looks at a place.
type reader struct {
	// user is the token's user, as the API server names it; the token's sum if the name is unknown.
	user string
	// opened is closed when screen or err is set.
	opened chan struct{}
	screen *Screen
	err    error
	// followed is the reader's context; end ends it.
	followed context.Context
	end      context.CancelFunc

	// requests is how many requests are being answered; last is when a request last began or ended. The mutex of
	// Readers guards both.
	requests int
	last     time.Time
}

// NewReaders returns Readers that end with ctx. It follows at most the given number of fleets at a time, one for each
// token and namespace.
func NewReaders(ctx context.Context, access Access, most int, clk clock.Clock) *Readers {
	return &Readers{ctx: ctx, access: access, most: most, clock: clk, planning: make(chan struct{}, 1), all: map[place]*reader{}}
}

// ServeHTTP implements http.Handler.
func (s *Readers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	harden(w)
	token, known := tokenOf(r)
	namespace, rest, valid := splitPath(r.URL.Path)
	switch {
	case !known:
		unauthorized(w, "this page needs a token in the header Authorization, as Bearer TOKEN: the proxy in front of it must pass on the one "+
			"that its user has for the API server")
		return
	case !valid:
		http.NotFound(w, r)
		return
	}
	key, user := place{sha256.Sum256([]byte(token)), namespace}, ""
	if !s.has(key) { // a refused token takes nobody's place
		ctx, cancel := context.WithTimeout(r.Context(), openTime)
		defer cancel()
		var err error
		if user, err = s.access.Check(ctx, token); err != nil {
			explain(w, err)
			return
		}
	}
	reader := s.enter(key, token, user)
	if reader == nil {
		http.Error(w, fmt.Sprintf("%d fleets are being looked at, which is as many as this page follows at a time: try again later", s.most),
			http.StatusServiceUnavailable)
		return
	}
	defer s.leave(reader)
	select {
	case <-reader.opened:
	case <-r.Context().Done():
		return
	case <-s.clock.After(openTime):
		http.Error(w, fmt.Sprintf("the API server has not answered in %s: try again later", openTime), http.StatusServiceUnavailable)
		return
	}
	if reader.err != nil {
		explain(w, reader.err)
		return
	}
	// A stream ends when its reader ends.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(reader.followed, cancel)()
	reader.screen.serve(w, r.WithContext(ctx), rest)
}

// bearer matches the header of RFC 6750. client-go would send a token of another form without credentials, or as two.
var bearer = regexp.MustCompile(`^(?i:Bearer) ([-A-Za-z0-9._~+/]+=*)$`)

// tokenOf returns the token of a request, and whether it has one.
func tokenOf(r *http.Request) (string, bool) {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return "", false
	}
	found := bearer.FindStringSubmatch(values[0])
	if found == nil {
		return "", false
	}
	return found[1], true
}

// splitPath returns the namespace at the start of a path, empty if there is none, and the path of the view below it.
func splitPath(path string) (namespace, rest string, valid bool) {
	below, is := strings.CutPrefix(path, namespaces)
	if !is {
		return "", path, true
	}
	end := strings.IndexByte(below+"/", '/')
	return below[:end], below[end:], len(validation.IsDNS1123Label(below[:end])) == 0
}

func unauthorized(w http.ResponseWriter, message string) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, message, http.StatusUnauthorized)
}

// explain writes an error of the API server as the answer.
func explain(w http.ResponseWriter, err error) {
	if apierrors.IsUnauthorized(err) {
		unauthorized(w, "the API server does not accept the token of this request: sign in again")
		return
	}
	http.Error(w, err.Error(), http.StatusBadGateway)
}

func (s *Readers) has(key place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[key] != nil
}

// enter returns the reader at a place, and starts to follow the fleet for a new reader. It returns nil if there is no
// room. The caller must call leave.
func (s *Readers) enter(key place, token, user string) *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.all[key]
	if found == nil {
		found = &reader{user: cmp.Or(user, string(key.token[:])), opened: make(chan struct{})}
		s.replace(found.user, key.namespace)
		if len(s.all) >= s.most && !s.evict(found.user) {
			return nil
		}
		found.followed, found.end = context.WithCancel(s.ctx)
		s.all[key] = found
		ctx := klog.NewContext(found.followed, klog.FromContext(s.ctx).WithValues("user", user, "namespace", key.namespace))
		go s.follow(ctx, found, key, token)
	}
	found.requests++
	found.last = s.clock.Now()
	return found
}

func (s *Readers) leave(reader *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reader.requests--
	reader.last = s.clock.Now()
}

// replace drops the readers of a user's other tokens in a namespace that serve no request: a proxy gets a new token
// every few minutes. The caller holds the mutex.
func (s *Readers) replace(user, namespace string) {
	for key, reader := range s.all {
		if reader.user == user && key.namespace == namespace && reader.requests == 0 {
			s.drop(key)
		}
	}
}

// evict makes room for a reader of the user and reports whether it could. It drops an idle reader if there is one, or
// else a reader of the user with the most readers, if that user then still has as many as the given user. Among
// equals it drops the reader with the oldest last request. The caller holds the mutex.
func (s *Readers) evict(user string) bool {
	count := map[string]int{}
	for _, reader := range s.all {
		count[reader.user]++
	}
	key := slices.MinFunc(slices.Collect(maps.Keys(s.all)), func(a, b place) int {
		x, y := s.all[a], s.all[b]
		return cmp.Or(cmp.Compare(min(x.requests, 1), min(y.requests, 1)), cmp.Compare(count[y.user], count[x.user]),
			x.last.Compare(y.last))
	})
	if ended := s.all[key]; ended.requests > 0 && count[ended.user] < count[user]+2 {
		return false
	}
	s.drop(key)
	return true
}

// drop ends the reader at a place. The caller holds the mutex.
func (s *Readers) drop(key place) {
	s.all[key].end()
	delete(s.all, key)
}

// forget removes a reader, so that the next request at its place starts anew, and reports whether it did. With
// onlyIdle, it keeps a reader that has, or lately had, a request.
func (s *Readers) forget(reader *reader, key place, onlyIdle bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if onlyIdle && (reader.requests > 0 || s.clock.Since(reader.last) < lingering) {
		return false
	}
	if s.all[key] == reader {
		delete(s.all, key)
	}
	return true
}

// follow follows the fleet for a reader until nobody looks, the API server rejects the token, or another reader takes
// the place.
func (s *Readers) follow(ctx context.Context, reader *reader, key place, token string) {
	defer reader.end()
	defer s.forget(reader, key, false)
	log := klog.FromContext(ctx)
	source, options, err := s.access.Follow(ctx, token, key.namespace)
	if err != nil {
		log.Info("The fleet cannot be followed for a reader", "because", err.Error())
		reader.err = err
		close(reader.opened)
		return
	}
	log.Info("Following the fleet for a reader")
	options.Clock = s.clock
	screen := New(source, options)
	screen.base, screen.planning = "", s.planning
	if key.namespace != "" {
		screen.base = namespaces + key.namespace
	}
	reader.screen = screen
	close(reader.opened)
	go screen.Run(ctx)
	for screen.wait(ctx, recheck, nil) && !s.forget(reader, key, true) {
		if _, err := s.access.Check(ctx, token); apierrors.IsUnauthorized(err) {
			log.Info("The API server accepts the token of a reader no more")
			return
		}
	}
}
