// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults has the faults that an emulated server can have.
package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Kind of a fault.
type Kind string

// The faults that a server can have.
const (
	// BMCUnreachable closes every connection to the BMC without an answer. A BMC with IPMI is silent.
	BMCUnreachable Kind = "bmc-unreachable"
	// WrongPassword has the BMC refuse every user name and password, and every session.
	WrongPassword Kind = "wrong-password"
	// Slow delays every answer of the BMC by Seconds.
	Slow Kind = "slow"
	// PowerStuck has the BMC accept every reset and do nothing about it.
	PowerStuck Kind = "power-stuck"
	// AgentSilent stops the deploy agent from calling and from answering.
	AgentSilent Kind = "agent-silent"
	// ImageWriteFails makes each attempt to write an image fail with a disk error.
	ImageWriteFails Kind = "image-write-fails"
	// DiesAfter ends what the server runs, Minutes after it was switched on. Power sets the power state after that.
	DiesAfter Kind = "dies-after"
)

// Kinds are all faults, in the order of their description.
func Kinds() []Kind {
	return []Kind{BMCUnreachable, WrongPassword, Slow, PowerStuck, AgentSilent, ImageWriteFails, DiesAfter}
}

// Power is the power state that the BMC reports after DiesAfter.
type Power string

const (
	// PowerOn is that of a system that hangs.
	PowerOn Power = "On"
	// PowerOff is that of a power supply that has failed.
	PowerOff Power = "Off"
)

// UnmarshalJSON accepts true and false too: YAML parses On and Off without quotes as booleans.
func (p *Power) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "true":
		*p = PowerOn
		return nil
	case "false":
		*p = PowerOff
		return nil
	}
	return json.Unmarshal(data, (*string)(p))
}

// Fault is one fault with its parameters.
type Fault struct {
	Kind Kind `json:"kind"`
	// Seconds is how long each call takes; for slow only, more than 0.
	Seconds float64 `json:"seconds,omitempty"`
	// Minutes is how long a server lives after it was switched on; for dies-after only, more than 0.
	Minutes float64 `json:"minutes,omitempty"`
	// Power is the power state that the BMC reports afterwards, On, which is the default, or Off; for dies-after only.
	Power Power `json:"power,omitempty"`
}

// Delay of each call to a slow BMC.
func (f Fault) Delay() time.Duration { return time.Duration(f.Seconds * float64(time.Second)) }

// Lifetime of a server that dies.
func (f Fault) Lifetime() time.Duration { return time.Duration(f.Minutes * float64(time.Minute)) }

// Validate returns an error if the kind is not known.
func (k Kind) Validate() error {
	if !slices.Contains(Kinds(), k) {
		return fmt.Errorf("fault kind %q is not known: it must be one of %s", k, names())
	}
	return nil
}

// Validate returns an error if the fault is not valid.
func (f Fault) Validate() error {
	if err := f.Kind.Validate(); err != nil {
		return err
	}
	switch {
	case f.Kind == Slow && f.Seconds <= 0:
		return fmt.Errorf("fault slow has seconds %v: it must be greater than 0", f.Seconds)
	case f.Kind != Slow && f.Seconds != 0:
		return fmt.Errorf("fault %s has seconds: only slow takes them", f.Kind)
	case f.Kind == DiesAfter && f.Minutes <= 0:
		return fmt.Errorf("fault dies-after has minutes %v: it must be greater than 0", f.Minutes)
	case f.Kind != DiesAfter && f.Minutes != 0:
		return fmt.Errorf("fault %s has minutes: only dies-after takes them", f.Kind)
	case f.Kind != DiesAfter && f.Power != "":
		return fmt.Errorf("fault %s has power: only dies-after takes it", f.Kind)
	case f.Power != "" && f.Power != PowerOn && f.Power != PowerOff:
		return fmt.Errorf("fault dies-after has power %q: it must be %s or %s", f.Power, PowerOn, PowerOff)
	}
	return nil
}

func names() string {
	var list []string
	for _, kind := range Kinds() {
		list = append(list, string(kind))
	}
	return strings.Join(list, ", ")
}

// Set holds the faults of one server. It may be used concurrently; the zero value is a server in order.
type Set struct {
	mu      sync.Mutex
	faults  map[Kind]Fault
	changed chan struct{}
}

// Put adds a fault, or replaces the one of its kind.
func (s *Set) Put(f Fault) error {
	if err := f.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults == nil {
		s.faults = map[Kind]Fault{}
	}
	s.faults[f.Kind] = f
	s.wake()
	return nil
}

// Clear removes a fault. It returns whether there was one.
func (s *Set) Clear(kind Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was := s.faults[kind]
	delete(s.faults, kind)
	s.wake()
	return was
}

// Get returns the fault of a kind, and whether the server has it.
func (s *Set) Get(kind Kind) (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fault, has := s.faults[kind]
	return fault, has
}

// Has returns whether the server has a fault of that kind.
func (s *Set) Has(kind Kind) bool {
	_, has := s.Get(kind)
	return has
}

// List returns the faults, in the order of Kinds.
func (s *Set) List() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []Fault{}
	for _, kind := range Kinds() {
		if fault, has := s.faults[kind]; has {
			list = append(list, fault)
		}
	}
	return list
}

// Changed returns a channel that is closed with the next change.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (s *Set) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// AwaitAnswer waits for as long as a slow BMC takes to answer, and not at all for any other. The error is that of the context, if that ends
// before.
func (s *Set) AwaitAnswer(ctx context.Context, c clock.Clock) error {
	slow, is := s.Get(Slow)
	if !is {
		return nil
	}
	timer := c.NewTimer(slow.Delay())
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
