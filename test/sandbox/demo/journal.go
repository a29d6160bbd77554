// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// kind of object that a line of the journal is about. The text is what is printed.
type kind string

const (
	kindPod       kind = "pod"
	kindNodeClaim kind = "nodeclaim"
	kindMachine   kind = "machine"
	kindHost      kind = "host"
	kindNode      kind = "node"
)

// step is a state of an object whose time is in the final table.
type step string

const (
	stepCreated     step = "created"
	stepClaimed     step = "claimed"
	stepProvisioned step = "provisioned"
	stepJoined      step = "joined"
	stepRunning     step = "running"
	stepDeleting    step = "deleting"
	stepGone        step = "gone"
	stepAvailable   step = "available"
)

type subject struct {
	kind kind
	name string
}

// journal prints a line when the description of an object changes, and records when each step was first seen.
type journal struct {
	out   io.Writer
	start time.Time

	mu      sync.Mutex
	printed map[subject]string
	times   map[subject]map[step]time.Time
}

func newJournal(out io.Writer) *journal {
	return &journal{out: out, start: time.Now(), printed: map[subject]string{}, times: map[subject]map[step]time.Time{}}
}

// observe records the description of an object and the steps that it has reached. The same description is printed once.
func (j *journal) observe(s subject, line string, steps ...step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if j.times[s] == nil {
		j.times[s] = map[step]time.Time{}
	}
	for _, reached := range steps {
		if _, seen := j.times[s][reached]; !seen {
			j.times[s][reached] = now
		}
	}
	if line == "" || j.printed[s] == line {
		return
	}
	j.printed[s] = line
	fmt.Fprintf(j.out, "%6.1fs  %-9s  %-22s  %s\n", now.Sub(j.start).Seconds(), s.kind, s.name, line)
}

// headline prints a line without an object.
func (j *journal) headline(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fmt.Fprintf(j.out, "\n%6.1fs  == %s\n", time.Since(j.start).Seconds(), fmt.Sprintf(format, args...))
}

// forget clears steps, for objects that reach the same ones twice.
func (j *journal) forget(s subject, steps ...step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, step := range steps {
		delete(j.times[s], step)
	}
}

// between returns how long it took from one step to another, and false if either was not seen.
func (j *journal) between(from subject, fromStep step, to subject, toStep step) (time.Duration, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	begin, ok := j.times[from][fromStep]
	if !ok {
		return 0, false
	}
	end, ok := j.times[to][toStep]
	if !ok {
		return 0, false
	}
	return end.Sub(begin), true
}
