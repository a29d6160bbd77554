// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baremetal emulates one server: its firmware, which boots what the BMC selects or the disk; the deploy agent,
// when it boots Ironic's medium; and the boot command, when it boots an installed image.
//
// The boot command is a program that runs for as long as the server, such as a virtual machine, a container or a
// script.
package baremetal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/stmcginnis/gofish/schemas"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// Options are what all servers of a rack have in common, but for Machine.
type Options struct {
	// IronicURL is the default for deploy agents whose medium has no URL.
	IronicURL string
	// AgentHost is the address of this machine that deploy agents serve their API on; empty means the one that reaches Ironic.
	AgentHost string
	// Heartbeat and Retry are the deploy agents' intervals.
	Heartbeat, Retry time.Duration
	// NetworkBoot is the URL of the directory from which servers boot by network, the one that has Ironic's boot.ipxe. Empty means that
	// such a server runs the deploy agent without parameters.
	NetworkBoot string
	// Machine says that the boot command is the whole machine, such as a virtual one, and boots what the BMC selects: neither firmware nor
	// deploy agent is emulated, and the disk is a file.
	Machine bool
	// BootCommand is the program that boots an installed image; empty means that such a server is on and runs nothing.
	BootCommand string
	// Grace is the time that a boot command has between SIGTERM and SIGKILL.
	Grace  time.Duration
	Clock  clock.Clock
	Logger logr.Logger
}

// Server is an emulated server. Its methods may be called concurrently.
type Server struct {
	options  Options
	identity bmc.Identity
	hardware inventory.Hardware
	disk     disk.Disk
	system   *bmc.System
	faults   faults.Set
	logger   logr.Logger

	mu       sync.Mutex
	power    schemas.PowerState
	activity func() string
	requests []schemas.ResetType
	wake     chan struct{}
}

// New returns a server that is off, with the disk in its directory, which must exist.
func New(options Options, identity bmc.Identity, hardware inventory.Hardware, dir string) *Server {
	s := &Server{
		options: options, identity: identity, hardware: hardware, disk: disk.Disk{Dir: dir},
		logger: options.Logger.WithValues("server", identity.Name),
		power:  schemas.OffPowerState, activity: fixed("off"), wake: make(chan struct{}, 1),
	}
	s.system = bmc.NewSystem(identity, hardware, s, &s.faults)
	return s
}

// System is the BMC of the server.
func (s *Server) System() *bmc.System { return s.system }

// Faults of the server, which can be changed at any time.
func (s *Server) Faults() *faults.Set { return &s.faults }

// Identity of the server.
func (s *Server) Identity() bmc.Identity { return s.identity }

// Hardware of the server.
func (s *Server) Hardware() inventory.Hardware { return s.hardware }

// Dir is the directory of the server, which is its disk.
func (s *Server) Dir() string { return s.disk.Dir }

// Installed returns the image on the server's disk; nil if it has none.
func (s *Server) Installed() (*disk.Image, error) { return s.disk.Installed() }

// PowerState implements bmc.Power.
func (s *Server) PowerState() schemas.PowerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.power
}

// Activity describes what the server is doing.
func (s *Server) Activity() string {
	s.mu.Lock()
	activity := s.activity
	s.mu.Unlock()
	return activity()
}

// Reset implements bmc.Power. A server with the fault of stuck power ignores it.
func (s *Server) Reset(reset schemas.ResetType) {
	if s.faults.Has(faults.PowerStuck) {
		s.logger.Info("Reset has no effect, by a fault", "reset", reset)
		return
	}
	s.press(reset)
}

// press requests a change of power, as the power button and the server's own shutdown do. It works even if the BMC does
// not.
func (s *Server) press(reset schemas.ResetType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, reset)
	select {
	case s.wake <- struct{}{}:
	default: // it was woken already, and will see all requests
	}
}

func (s *Server) nextRequest() (schemas.ResetType, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		return "", false
	}
	next := s.requests[0]
	s.requests = s.requests[1:]
	return next, true
}

func (s *Server) set(power schemas.PowerState, activity func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.power != power {
		s.logger.Info("Power", "state", power)
	}
	s.power, s.activity = power, activity
}

func (s *Server) doing(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.logger.Info("Server", "does", text)
	s.set(schemas.OnPowerState, fixed(text))
}

func fixed(text string) func() string { return func() string { return text } }

// errDied is the cause of the end of a server that dies.
var errDied = errors.New("the server has died")

// life is one run of the server, from power-on to power-off.
type life struct {
	cancel context.CancelCauseFunc
	// over is closed at the end of the run. Then reason is why it ended by itself; nil if the power was cut.
	over   chan struct{}
	reason error
	// mortal is set when the server has the fault dies-after; from is when it was switched on or the fault was set.
	mortal bool
	from   time.Time
	dead   bool
}

// Run runs the server until the context ends, and then switches it off.
func (s *Server) Run(ctx context.Context) {
	var current *life
	for {
		changed := s.faults.Changed()
		for reset, ok := s.nextRequest(); ok; reset, ok = s.nextRequest() {
			current = s.reset(ctx, current, reset)
		}
		death, stopTimer := s.death(current)
		select {
		case <-ctx.Done():
			s.switchOff(current)
			stopTimer()
			return
		case <-s.wake:
		case <-changed:
		case <-over(current):
			s.switchOff(current)
			if current.reason != nil {
				s.set(schemas.OffPowerState, fixed("off: "+current.reason.Error()))
			}
			current = nil
		case <-death:
			current = s.die(current)
		}
		stopTimer()
	}
}

func (s *Server) reset(ctx context.Context, current *life, reset schemas.ResetType) *life {
	s.logger.Info("Reset", "type", reset)
	switch reset {
	case schemas.ForceOffResetType, schemas.GracefulShutdownResetType:
		s.switchOff(current)
		return nil
	case schemas.OnResetType, schemas.ForceOnResetType:
		if current != nil && !current.ended() {
			return current
		}
	}
	s.switchOff(current)
	return s.switchOn(ctx)
}

// ended returns whether the server has switched itself off.
func (l *life) ended() bool {
	select {
	case <-l.over:
		return !l.dead
	default:
		return false
	}
}

func (s *Server) switchOn(ctx context.Context) *life {
	ctx, cancel := context.WithCancelCause(ctx)
	started := &life{cancel: cancel, over: make(chan struct{})}
	s.doing("starting its firmware")
	go func() {
		defer close(started.over)
		started.reason = s.boot(ctx)
	}()
	return started
}

// switchOff returns at the end of the run.
func (s *Server) switchOff(current *life) {
	if current != nil {
		current.cancel(nil)
		<-current.over
	}
	s.set(schemas.OffPowerState, fixed("off"))
}

// over returns the channel of a run that can still end by itself, after which the server is off. A server that hangs
// stays on.
func over(current *life) <-chan struct{} {
	if current == nil || current.dead {
		return nil
	}
	return current.over
}

// death returns a channel that fires when the server dies; nil if it does not.
func (s *Server) death(current *life) (<-chan time.Time, func()) {
	fault, has := s.faults.Get(faults.DiesAfter)
	if current == nil || current.dead {
		return nil, func() {}
	}
	if !has {
		current.mortal = false
		return nil, func() {}
	}
	if !current.mortal {
		current.mortal, current.from = true, s.options.Clock.Now()
	}
	timer := s.options.Clock.NewTimer(current.from.Add(fault.Lifetime()).Sub(s.options.Clock.Now()))
	return timer.C(), func() { timer.Stop() }
}

// die ends what the server runs, at once. The fault sets the power state that the BMC reports.
func (s *Server) die(current *life) *life {
	fault, _ := s.faults.Get(faults.DiesAfter)
	current.dead = true
	current.cancel(errDied)
	<-current.over
	if fault.Power == faults.PowerOff {
		s.set(schemas.OffPowerState, fixed("off: it has died, by a fault"))
		return nil
	}
	s.doing("dead, by a fault: it is on and does nothing")
	return current
}
