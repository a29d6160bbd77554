// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/view"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/cmd/kubectl-metal3/internal/whatif"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/topology"
)

const (
	// interval is the least time between two versions of a page.
	interval = time.Second
	// refresh is how long a version is shown if nothing changes: the estimates in it become old.
	refresh = 15 * time.Second
	// busy bounds the part of its time that the program makes versions in, as one of so many.
	busy = 5
	// maxPages is how many pages of a version are kept. One with another filter is another page.
	maxPages = 32
	// readTime is how long reading who had a server may take.
	readTime = 5 * time.Second
	// maxMoves is how many changes of states are listed.
	maxMoves = 30
)

// Source is where the fleet comes from. *view.Live is one.
type Source interface {
	// Snapshot returns the present. It is not written to.
	Snapshot() *view.Snapshot
	// Changed is closed at the next change after the call.
	Changed() <-chan struct{}
	// Lost says which cluster does not answer now; empty if all do.
	Lost() string
}

// Options of a Screen.
type Options struct {
	// Token is the first element of the paths: who does not know it sees nothing.
	Token string
	// Still is true if the source never changes.
	Still bool
	// History reads who had a server and when; nil if the source has that. The name has its namespace in front.
	History func(ctx context.Context, name string) ([]view.Use, error)
	// Planning adds to a snapshot what only What if needs, and is not followed: see view.Snapshot.ReadPlanning. It is nil if the snapshots
	// of the source have it. The snapshot has one tenant cluster, which has this number among those of the source, or none.
	Planning func(ctx context.Context, snapshot *view.Snapshot, tenant int) error
	// Topology is --topology-labels of the programs: for What if, and for the domains that racks are in.
	Topology topology.Mapping
	// Links lead out of the page.
	Links []Link
	// Prometheus has the history from before the program was started; nil if there is none.
	Prometheus *Prometheus
	// Clock is the clock that changes are gathered by. Default: the real one.
	Clock clock.Clock
}

// Screen serves the pages. It is an http.Handler.
type Screen struct {
	source  Source
	still   bool
	base    string
	clock   clock.Clock
	viewers chan struct{}
	// planning has one place.
	planning   chan struct{}
	complete   func(context.Context, *view.Snapshot, int) error
	topology   topology.Mapping
	links      []Link
	prometheus *Prometheus
	read       func(context.Context, string) ([]view.Use, error)
	// changed is closed when the source is newer than the last version.
	changed <-chan struct{}

	mu       sync.Mutex
	current  *version
	history  history
	moves    []move
	recorded recorded
	// past of the servers whose pages were asked for last.
	past map[string]past
}

// past is who had a server, or why that is not known.
type past struct {
	Uses  []view.Use
	Wrong string
}

// move is a change of the state of a server.
type move struct {
	At       time.Time
	Server   view.Server
	From, To view.State
}

// version is the fleet at one time, with what was rendered of it.
type version struct {
	// over is closed when there is a newer one.
	over chan struct{}
	lost string

	// mu guards what follows: a Fleet is not safe for concurrent use.
	mu       sync.Mutex
	snapshot *view.Snapshot
	fleet    *view.Fleet
	servers  []view.Server
	domains  domains
	links    []Link
	machines map[string]view.Machine
	issues   []view.Issue
	waiting  int
	moves    []move
	history  history
	pages    map[page]*rendered
}

// New returns a Screen that shows the present of the source. Run follows it.
func New(source Source, options Options) *Screen {
	s := &Screen{source: source, still: options.Still, base: "/" + options.Token, clock: options.Clock,
		viewers: make(chan struct{}, maxViewers), planning: make(chan struct{}, 1), complete: options.Planning, topology: options.Topology,
		links: options.Links, prometheus: options.Prometheus,
		read: options.History, past: map[string]past{}, history: history{every: interval}}
	_ = whatif.Register(s.topology) // if that is not possible, What if says so
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	s.update()
	return s
}

// Run follows the source until the context ends.
func (s *Screen) Run(ctx context.Context) {
	for !s.still {
		if !s.wait(ctx, refresh, s.changed) {
			return
		}
		began := s.clock.Now()
		s.update()
		if !s.wait(ctx, max(interval, busy*s.clock.Since(began)), nil) {
			return
		}
	}
}

// wait waits for a time, or until the source has changed. It returns false when the context has ended.
func (s *Screen) wait(ctx context.Context, most time.Duration, changed <-chan struct{}) bool {
	timer := s.clock.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-timer.C():
	}
	return true
}

// update makes a version of the present.
func (s *Screen) update() {
	s.changed = s.source.Changed()
	snapshot := s.source.Snapshot()
	next := &version{over: make(chan struct{}), lost: s.source.Lost(), snapshot: snapshot, fleet: view.New(snapshot),
		pages: map[page]*rendered{}, links: s.links}
	next.servers, next.issues = next.fleet.Servers(), next.fleet.Issues()
	_, next.waiting = next.fleet.Waiting(0)
	next.machines, next.domains = machinesOf(next.fleet), domainsOf(next.servers, s.topology.Sources())

	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.current
	if before != nil {
		s.note(before, next)
	}
	s.history.add(next.sample())
	next.moves = append([]move(nil), s.moves...)
	next.history = history{samples: append([]sample(nil), s.history.samples...)}
	s.current = next
	if before != nil {
		close(before.over)
	}
}

// note adds what has changed between two versions to the list of moves, the newest first.
func (s *Screen) note(before, next *version) {
	states := make(map[string]view.State, len(before.servers))
	for i := range before.servers {
		states[before.servers[i].Key().String()] = before.servers[i].State
	}
	for i := range next.servers {
		server := &next.servers[i]
		if from := states[server.Key().String()]; from != server.State {
			s.moves = append([]move{{next.fleet.Now(), *server, from, server.State}}, s.moves[:min(len(s.moves), maxMoves-1)]...)
		}
	}
}

// machinesOf are the Machines of a fleet by namespace and name.
func machinesOf(fleet *view.Fleet) map[string]view.Machine {
	all := map[string]view.Machine{}
	for _, machine := range fleet.Machines() {
		all[machine.Namespace+"/"+machine.Name] = machine
	}
	return all
}

// present is the newest version.
func (s *Screen) present() *version {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// remember reads who had a server, if the source does not have that. The streams of its page show it until the page is asked for again.
func (s *Screen) remember(ctx context.Context, name string) {
	if s.read == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var read past
	var err error
	if read.Uses, err = s.read(ctx, name); err != nil {
		read.Wrong = err.Error()
	}
	s.mu.Lock()
	if len(s.past) >= maxPages {
		for visited := range s.past {
			delete(s.past, visited)
			break
		}
	}
	s.past[name] = read
	current := s.current
	s.mu.Unlock() // drawing takes the lock of the version first
	current.forget(page{View: "server", Name: name})
}

// forget has a page be made again.
func (v *version) forget(page page) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.pages, page)
}

// pastOf is who had a server.
func (s *Screen) pastOf(fleet *view.Fleet, name string) past {
	if s.read == nil {
		uses, _ := fleet.History(name) // the server is known
		return past{Uses: uses}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.past[name]
}

// sample counts the servers.
func (v *version) sample() sample {
	taken := sample{time: v.fleet.Now(), byType: map[string]counts{}}
	for i := range v.servers {
		group := groupOf(v.servers[i].State)
		taken.all[group]++
		for _, name := range v.servers[i].Types {
			counted := taken.byType[name]
			counted[group]++
			taken.byType[name] = counted
		}
	}
	return taken
}
