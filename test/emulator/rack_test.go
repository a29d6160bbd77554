// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// fakeSource is a Source that the test controls.
type fakeSource struct {
	changed  chan func(func(string, Power))
	userData func(server string) ([]byte, error)
	err      error
}

func (s *fakeSource) Watch(ctx context.Context, changed func(string, Power)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case call := <-s.changed:
			if s.err != nil {
				return s.err
			}
			call(changed)
		}
	}
}

func (s *fakeSource) UserData(_ context.Context, server string) ([]byte, error) {
	return s.userData(server)
}

func (s *fakeSource) set(server string, power Power) {
	s.changed <- func(changed func(string, Power)) { changed(server, power) }
}

// runRack runs a rack until the test ends or stop is called, and returns a channel of its status changes.
func runRack(t *testing.T, source *fakeSource, servers ...string) (changes <-chan Status, stop func() error) {
	t.Helper()
	source.changed = make(chan func(func(string, Power)))
	statuses := make(chan Status, 100)
	config := Config{
		Source: source, Logger: testr.New(t), Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
		RetryInterval: time.Millisecond, OnChange: func(status Status) { statuses <- status },
	}
	for _, name := range servers {
		config.Servers = append(config.Servers, Server{Name: name})
	}
	rack, err := NewRack(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- rack.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	t.Cleanup(func() { _ = stop() })
	return statuses, stop
}

func expect(t *testing.T, changes <-chan Status, server string, state State, reason string) {
	t.Helper()
	got := <-changes
	if got.Server != server || got.State != state || !strings.Contains(got.Reason, reason) {
		t.Fatalf("got %s %s (%s), want %s %s (%s)", got.Server, got.State, got.Reason, server, state, reason)
	}
}

func TestRackFollowsPower(t *testing.T) {
	before := runtime.NumGoroutine()
	attempts := 0
	source := &fakeSource{userData: func(string) ([]byte, error) {
		switch attempts++; attempts {
		case 1:
			return nil, errors.New("connection refused")
		case 2:
			return []byte("#!/bin/sh"), nil
		}
		return nil, ErrNoUserData
	}}
	changes, stop := runRack(t, source, "a", "b")

	source.set("stranger", Power{On: true, Install: "1"}) // a server of another rack
	source.set("a", Power{})                              // off already
	source.set("a", Power{On: true, Install: "1"})
	expect(t, changes, "a", Booting, "")
	expect(t, changes, "a", Booting, "connection refused") // an outage passes
	expect(t, changes, "a", Failed, `no script in it runs`)
	source.set("a", Power{On: true, Install: "1"}) // no change: a failed boot is not repeated
	source.set("a", Power{On: false, Install: "1"})
	expect(t, changes, "a", Off, "")
	source.set("a", Power{On: true, Install: "1"}) // switched on again, and the drive is empty now
	expect(t, changes, "a", Booting, "")
	expect(t, changes, "a", Failed, "no user data")
	source.set("a", Power{On: true, Install: "2"}) // installed again while the informer was disconnected
	expect(t, changes, "a", Booting, "")
	expect(t, changes, "a", Failed, "no user data")

	if err := stop(); err != nil {
		t.Errorf("a rack whose context ends must have no error: %v", err)
	}
	expectGoroutines(t, before)
}

// expectGoroutines waits until the number of goroutines is back to the earlier one.
func expectGoroutines(t *testing.T, before int) {
	t.Helper()
	poll.Eventually(t, "no goroutine is left", func(context.Context) error {
		if now := runtime.NumGoroutine(); now > before {
			stacks := make([]byte, 1<<20)
			return fmt.Errorf("%d goroutines before, %d after:\n%s", before, now, stacks[:runtime.Stack(stacks, true)])
		}
		return nil
	})
}

func TestRackSourceFails(t *testing.T) {
	source := &fakeSource{err: errors.New("no such kind")}
	_, stop := runRack(t, source, "a")
	source.set("a", Power{})
	if err := stop(); err == nil || !strings.Contains(err.Error(), "running the rack, no such kind") {
		t.Errorf("got error %v", err)
	}
}

func TestNewRack(t *testing.T) {
	for name, servers := range map[string][]Server{"Twice": {{Name: "a"}, {Name: "a"}}, "NoName": {{}}} {
		if _, err := NewRack(Config{Source: &fakeSource{}, Servers: servers}); err == nil {
			t.Errorf("%s: two servers cannot share one host", name)
		}
	}
	clk := clocktesting.NewFakePassiveClock(time.Unix(7, 0))
	rack, err := NewRack(Config{Source: &fakeSource{}, Clock: clk, Servers: []Server{{Name: "b"}, {Name: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Status{{Server: "a", State: Off, Since: clk.Now()}, {Server: "b", State: Off, Since: clk.Now()}}
	if diff := cmp.Diff(want, rack.Statuses()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
