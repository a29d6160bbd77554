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
	// refresh is how long a version is shown if nothing changes: its estimates become old.
	refresh = 15 * time.Second
	// busy limits the work on versions: the program spends at most one part in busy of its time on them.
	busy = 5
	// maxPages is how many pages of a version are kept. Another filter makes another page.
	maxPages = 32
	// readTime is how long a read of a server's past users, or of Prometheus, may take.
	readTime = 5 * time.Second
	// maxMoves is how many changes of states are listed.
	maxMoves = 30
)

// Source provides the fleet. *view.Live is a Source.
type Source interface {
	// Snapshot returns the present. The Screen does not write to it.
	Snapshot() *view.Snapshot
	// Changed returns a channel that is closed at the next change after the call.
	Changed() <-chan struct{}
	// Lost names the cluster that does not answer now; empty if all answer.
	Lost() string
}

// Options are the options of a Screen.
type Options struct {
	// Token is the first element of the paths: nobody sees the page without it.
	Token string
	// Still: the source never changes.
	Still bool
	// History reads who had a server and when; nil if the source has that. The name has its namespace in front.
	History func(ctx context.Context, name string) ([]view.Use, error)
	// Planning adds to a snapshot what only What if needs and the source does not follow: see
	// view.Snapshot.ReadPlanning. It is nil if the snapshots of the source have it. The snapshot has one tenant
	// cluster or none; tenant is its number among the tenant clusters of the source.
	Planning func(ctx context.Context, snapshot *view.Snapshot, tenant int) error
	// Topology is --topology-labels of the programs. What if uses it, and the page groups racks by its labels.
	Topology topology.Mapping
	// Links lead out of the page.
	Links []Link
	// Prometheus has the history from before the start of the program; nil if there is none.
	Prometheus *Prometheus
	// Clock measures the time between versions. Default: the real clock.
	Clock clock.Clock
}

// Screen is an http.Handler that serves the pages.
type Screen struct {
	source  Source
	still   bool
	base    string
	clock   clock.Clock
	viewers chan struct{}
	// planning has one slot.
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
	// past is the past of the servers whose pages were asked for last.
	past map[string]past
}

// past is who had a server, or why that is unknown.
type past struct {
	Uses  []view.Use
	Wrong string
}

type move struct {
	At       time.Time
	Server   view.Server
	From, To view.State
}

// version is the fleet at one time and the pages that were rendered from it.
type version struct {
	// over is closed when there is a newer version.
	over chan struct{}
	lost string

	// mu guards the fields below: a Fleet is not safe for concurrent use.
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

// New returns a Screen that shows the present of the source. Run follows the source.
func New(source Source, options Options) *Screen {
	s := &Screen{source: source, still: options.Still, base: "/" + options.Token, clock: options.Clock,
		viewers: make(chan struct{}, maxViewers), planning: make(chan struct{}, 1), complete: options.Planning, topology: options.Topology,
		links: options.Links, prometheus: options.Prometheus,
		read: options.History, past: map[string]past{}, history: history{every: interval}}
	_ = whatif.Register(s.topology) // if it fails, What if reports the error
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	s.update()
	return s
}

// Run follows the source until ctx ends.
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

// wait waits until the time is over or changed is closed. It returns false when ctx has ended.
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

// note adds the changes of state between two versions to the list of moves, the newest first.
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

func machinesOf(fleet *view.Fleet) map[string]view.Machine {
	all := map[string]view.Machine{}
	for _, machine := range fleet.Machines() {
		all[machine.Namespace+"/"+machine.Name] = machine
	}
	return all
}

func (s *Screen) present() *version {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// remember reads who had a server, unless the source has that. Streams of the server's page show it once somebody
// asks for the page again.
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
	s.mu.Unlock() // a drawing takes the version's lock before this one
	current.forget(page{View: "server", Name: name})
}

// forget makes the version render a page again.
func (v *version) forget(page page) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.pages, page)
}

func (s *Screen) pastOf(fleet *view.Fleet, name string) past {
	if s.read == nil {
		uses, _ := fleet.History(name) // the server is known
		return past{Uses: uses}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.past[name]
}

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
