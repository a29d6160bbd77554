// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployagent is an agent of the deploy ramdisk, with the protocol of ironic-python-agent.
//
// It looks its server up by MAC address, sends heartbeats, and executes the commands of its HTTP API: it lists and
// executes clean and deploy steps, writes an image and a config drive to the disk, and powers the server off.
// A server then boots the image that Ironic sent. Hardware and disk are emulated, by a rack, or those of the machine
// that it runs on.
package deployagent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/disk"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
)

// version of ironic-python-agent that this agent reports.
const version = "9.4.0"

// requestTimeout bounds a call to Ironic.
const requestTimeout = 30 * time.Second

// lastAnswers bounds how long pending calls are still answered at power off.
const lastAnswers = time.Second

// Disk takes the image.
type Disk interface {
	// Create opens what an image is written to while it is downloaded. It erases the disk.
	Create() (io.WriteCloser, error)
	// Commit makes what was written the image on the disk, with the config drive, which may be empty.
	Commit(image disk.Image, configDrive []byte) error
	// Erase erases everything.
	Erase() error
}

// Server is what an agent runs on.
type Server struct {
	// Name of the server, which is its host name.
	Name string
	// Hardware that the agent finds. Ironic finds the node by one of its MAC addresses.
	Hardware inventory.Hardware
	Disk     Disk
	// Faults of the server.
	Faults *faults.Set
	// PowerOff and Reboot are called once, at the end of the agent's last command. They return at once.
	PowerOff, Reboot func()
}

// Options of an agent.
type Options struct {
	Server     Server
	Parameters Parameters
	// Listen is the address that the agents' APIs are served on, each agent on another port. Empty means the address of this machine
	// from which it reaches Ironic.
	Listen string
	// Heartbeat is the time between two heartbeats. The end of a command sends one at once.
	Heartbeat time.Duration
	// Retry is the time between two attempts to reach Ironic.
	Retry  time.Duration
	Clock  clock.Clock
	Logger logr.Logger
}

// Agent is one run of the ramdisk, from its boot to power off.
type Agent struct {
	options  Options
	client   *http.Client
	commands *commands
	// beat asks for a heartbeat now.
	beat chan struct{}

	mu    sync.Mutex
	token string
	state string
}

// New returns an agent that has not been started.
func New(options Options) *Agent {
	a := &Agent{
		options: options, beat: make(chan struct{}, 1), state: "starting",
		// Each agent has its own connections, which end with it.
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: options.Parameters.Insecure}}},
	}
	a.commands = newCommands(a.execute, a.heartbeatNow)
	return a
}

// State describes what the agent is doing.
func (a *Agent) State() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

func (a *Agent) setState(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	state := fmt.Sprintf(format, args...)
	if state != a.state {
		a.options.Logger.Info("Agent", "state", state)
	}
	a.state = state
}

// Run runs the agent until the context ends, which is the server's power being cut. It returns an error if the agent could
// not do its work at all.
func (a *Agent) Run(ctx context.Context) error {
	defer a.client.CloseIdleConnections()
	address := a.address(ctx)
	if ctx.Err() != nil {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return fmt.Errorf("listening for Ironic, %w", err)
	}
	server := &http.Server{Handler: a.handler(), ReadHeaderTimeout: requestTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	a.commands.start(ctx)
	a.call(ctx, "http://"+listener.Addr().String())
	a.commands.stop()
	// The command to power off is answered before the agent ends. Longer calls are cut off.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	if server.Shutdown(last) != nil {
		_ = server.Close()
	}
	if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answering Ironic, %w", err)
	}
	return nil
}

// address returns the address to listen on. Without a given one it tries until it knows how to reach Ironic, whose name may not exist
// yet, or until the context ends.
func (a *Agent) address(ctx context.Context) string {
	found := a.options.Listen
	for found == "" && ctx.Err() == nil {
		var err error
		if found, err = addressToward(ctx, cmp.Or(a.options.Parameters.IronicURL, a.options.Parameters.InspectionURL)); err != nil {
			a.setState("finding the address at which Ironic can reach it: %v", err)
			a.wait(ctx, a.options.Retry)
		}
	}
	return found
}

// call is inspected if that is asked for, looks the server up, and then heartbeats until the context ends.
func (a *Agent) call(ctx context.Context, callback string) {
	if a.options.Parameters.InspectionURL != "" {
		a.attempt(ctx, "sending its inventory", a.inspect)
	}
	if a.options.Parameters.IronicURL == "" {
		a.setState("inspected, and nothing else to do: the medium does not say where Ironic is")
		<-ctx.Done()
		return
	}
	var node string
	a.attempt(ctx, "looking itself up", func(ctx context.Context) (err error) {
		node, err = a.lookUp(ctx)
		return err
	})
	for ctx.Err() == nil {
		a.attempt(ctx, "calling Ironic", func(ctx context.Context) error { return a.heartbeat(ctx, node, callback) })
		if ctx.Err() == nil {
			a.setState("known to Ironic as node %s", node)
		}
		a.wait(ctx, a.options.Heartbeat)
	}
}

// attempt makes a call to Ironic until it succeeds or the context ends. No call is made while the agent is silent.
func (a *Agent) attempt(ctx context.Context, what string, call func(context.Context) error) {
	for ctx.Err() == nil {
		if a.silent(ctx) {
			continue
		}
		err := call(ctx)
		if err == nil {
			return
		}
		a.setState("%s: %v", what, err)
		a.wait(ctx, a.options.Retry)
	}
}

// silent waits while the agent has the fault agent-silent. It returns whether it waited.
func (a *Agent) silent(ctx context.Context) bool {
	set := a.options.Server.Faults
	changed := set.Changed()
	if !set.Has(faults.AgentSilent) {
		return false
	}
	a.setState("silent, by its fault")
	select {
	case <-changed:
	case <-ctx.Done():
	}
	return true
}

// wait returns after a time, or when a heartbeat is requested.
func (a *Agent) wait(ctx context.Context, pause time.Duration) {
	timer := a.options.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-a.beat:
	case <-ctx.Done():
	}
}

func (a *Agent) heartbeatNow() {
	select {
	case a.beat <- struct{}{}:
	default: // one is due already
	}
}
