// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"k8s.io/utils/clock"
)

// Options of a Supervisor.
type Options struct {
	// Dir is where the sub-directories log (log files) and run (pid files) are made.
	Dir string
	// Clock is used for backoff and grace periods; nil means the real one.
	Clock clock.Clock
	// OnExit is called, one call at a time, for each unexpected exit; may be nil. It must not call the Supervisor.
	OnExit func(Exit)
}

// A Supervisor runs and restarts processes. Its methods may be called concurrently.
type Supervisor struct {
	logDir, runDir string
	clock          clock.Clock
	onExit         func(Exit)

	mu       sync.Mutex
	closed   bool
	order    []string
	children map[string]*child

	exitMu sync.Mutex
}

// NewSupervisor makes the directories for log and pid files. The Supervisor must be closed.
func NewSupervisor(options Options) (*Supervisor, error) {
	s := &Supervisor{
		logDir: filepath.Join(options.Dir, "log"), runDir: filepath.Join(options.Dir, "run"),
		clock: options.Clock, onExit: options.OnExit, children: map[string]*child{},
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	for _, dir := range []string{s.logDir, s.runDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making the directory for processes, %w", err)
		}
	}
	return s, nil
}

// Start starts a process and returns once it runs. It is an error if one of that name is running already.
func (s *Supervisor) Start(spec Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("starting %s, the supervisor is closed", spec.Name)
	}
	restarts := 0
	if previous, ok := s.children[spec.Name]; ok {
		select {
		case <-previous.done:
			restarts = previous.info().Restarts
		default:
			return fmt.Errorf("starting %s, it is running already", spec.Name)
		}
	}
	c := &child{
		spec:    spec,
		logFile: filepath.Join(s.logDir, spec.Name+".log"), pidFile: filepath.Join(s.runDir, spec.Name+".pid"),
		clock: s.clock, onExit: s.exited, restarts: restarts,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	started := make(chan error, 1)
	go c.supervise(started)
	if err := <-started; err != nil {
		return err
	}
	if !slices.Contains(s.order, spec.Name) {
		s.order = append(s.order, spec.Name)
	}
	s.children[spec.Name] = c
	return nil
}

// StartAgain starts a process that was stopped or has failed, with the same Spec.
func (s *Supervisor) StartAgain(name string) error {
	c, err := s.child(name)
	if err != nil {
		return err
	}
	return s.Start(c.spec)
}

// Spec returns the Spec of a process, for another one like it.
func (s *Supervisor) Spec(name string) (Spec, error) {
	c, err := s.child(name)
	if err != nil {
		return Spec{}, err
	}
	return c.spec, nil
}

// Stop ends a process with SIGTERM, and with SIGKILL after its grace period. It returns when the process is gone;
// stopping one that is gone already is no error.
func (s *Supervisor) Stop(name string) error {
	c, err := s.child(name)
	if err != nil {
		return err
	}
	c.requestStop()
	<-c.done
	return nil
}

// Kill ends a process with SIGKILL, as a crash would: it is restarted if its Spec says so.
func (s *Supervisor) Kill(name string) error {
	c, err := s.child(name)
	if err != nil {
		return err
	}
	return c.signal(syscall.SIGKILL)
}

// List describes all processes in the order of their first start.
func (s *Supervisor) List() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Info, 0, len(s.order))
	for _, name := range s.order {
		list = append(list, s.children[name].info())
	}
	return list
}

// Close stops all processes, those of the highest rank first, and returns when all are gone. Nothing can be started afterwards.
func (s *Supervisor) Close() {
	s.mu.Lock()
	s.closed = true
	ranks := map[int][]*child{}
	for _, c := range s.children {
		ranks[c.spec.Rank] = append(ranks[c.spec.Rank], c)
	}
	s.mu.Unlock()

	for _, rank := range slices.Backward(slices.Sorted(maps.Keys(ranks))) {
		for _, c := range ranks[rank] {
			c.requestStop()
		}
		for _, c := range ranks[rank] {
			<-c.done
		}
	}
}

func (s *Supervisor) child(name string) (*child, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.children[name]
	if !ok {
		known := slices.Clone(s.order)
		return nil, fmt.Errorf("no process is called %q; known are %v", name, known)
	}
	return c, nil
}

func (s *Supervisor) exited(exit Exit) {
	s.exitMu.Lock()
	defer s.exitMu.Unlock()
	if s.onExit != nil {
		s.onExit(exit)
	}
}

// ForTest makes a Supervisor for a test, which fails when a process exits. The Supervisor is closed at the end of the test.
func ForTest(t testing.TB, dir string) *Supervisor {
	t.Helper()
	s, err := NewSupervisor(Options{Dir: dir, OnExit: func(exit Exit) { t.Error(exit) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
