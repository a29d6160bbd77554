// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package emulator emulates bare-metal servers above Metal3: they boot and join a cluster.
//
// An emulated server depends only on its power, the image on its disk, and its config drive. It reads the user data
// there as cloud-init does, and joins as `kubeadm join` and the kubelet do: it verifies the cluster by token and CA
// hash, asks for a client certificate, and registers its Node with that identity. With a wrong token, endpoint or hash
// it does not join. kwok sends the heartbeats of the Node and runs its pods.
//
// Power and config drive come from a Source. Metal3Source takes them from BareMetalHosts.
//
// The packages below it emulate a rack below Metal3: BMCs, deploy agents and disks (README.md).
package emulator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Config is what a Rack needs.
type Config struct {
	// RESTConfig reaches the management cluster, where the BareMetalHosts are. Not used if Source is set.
	RESTConfig *rest.Config
	// Namespace of the BareMetalHosts. Not used if Source is set.
	Namespace string
	// Source of power and config drives; by default a Metal3Source.
	Source Source
	// Servers of the rack. Other hosts are ignored.
	Servers []Server
	Logger  logr.Logger
	Clock   clock.PassiveClock
	// RetryInterval between attempts: 1 second by default.
	RetryInterval time.Duration
	// JoinTimeout bounds each step of a join, as kubeadm does: 5 minutes, kubeadm's own, by default.
	JoinTimeout time.Duration
	// OnChange, if set, is called with each new status. It must return quickly.
	OnChange func(Status)
}

// Rack is a set of emulated servers.
type Rack struct {
	config  Config
	servers map[string]Server
	disks   map[string]*disk

	mu       sync.Mutex
	runs     map[string]*run
	statuses map[string]Status
}

// run is what a server does between two changes of its power.
type run struct {
	power Power
	stop  context.CancelFunc
	// reset ends the present boot, and has the next one begin. It is nil while the server is off.
	reset context.CancelFunc
	// done is closed when this run and those before it have ended.
	done <-chan struct{}
}

// NewRack returns a rack. It reads nothing from the cluster. Two servers of one name are an error.
func NewRack(config Config) (*Rack, error) {
	config.RetryInterval = cmp.Or(config.RetryInterval, time.Second)
	config.JoinTimeout = cmp.Or(config.JoinTimeout, 5*time.Minute)
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	r := &Rack{
		config:   config,
		servers:  map[string]Server{},
		disks:    map[string]*disk{},
		runs:     map[string]*run{},
		statuses: map[string]Status{},
	}
	for _, server := range config.Servers {
		if _, twice := r.servers[server.Name]; twice || server.Name == "" {
			return nil, fmt.Errorf("building the rack, the name %q of a server is empty or not unique", server.Name)
		}
		r.servers[server.Name] = server
		r.disks[server.Name] = &disk{}
		r.statuses[server.Name] = Status{Server: server.Name, State: Off, Since: config.Clock.Now()}
	}
	if config.Source == nil {
		source, err := NewMetal3Source(config.RESTConfig, config.Namespace)
		if err != nil {
			return nil, fmt.Errorf("building the rack, %w", err)
		}
		r.config.Source = source
	}
	return r, nil
}

// Run emulates the servers until the context is done, and returns once all of them have stopped. The Nodes stay as they
// are, as with servers that lose power. A rack can be run once.
func (r *Rack) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var servers sync.WaitGroup
	err := r.config.Source.Watch(ctx, func(server string, power Power) {
		r.change(ctx, &servers, server, power)
	})
	cancel()
	servers.Wait()
	if err != nil {
		return fmt.Errorf("running the rack, %w", err)
	}
	return nil
}

// Statuses returns what each server is doing, sorted by name.
func (r *Rack) Statuses() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.statuses), func(a, b Status) int { return cmp.Compare(a.Server, b.Server) })
}

// Reset is what a BMC does to a server that is on: it boots again at once. A server that is off stays off.
func (r *Rack) Reset(server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if present := r.runs[server]; present != nil && present.reset != nil {
		present.reset()
	}
}

// change ends the server's present run and starts the next one, after the present one has ended.
func (r *Rack) change(ctx context.Context, servers *sync.WaitGroup, name string, power Power) {
	server, ours := r.servers[name]
	if !ours {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.runs[name]
	if before == nil {
		before = &run{stop: func() {}, done: closed()}
	}
	if before.power == power {
		return
	}
	before.stop()
	runCtx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	present := &run{power: power, stop: stop, done: done}
	r.runs[name] = present
	servers.Go(func() {
		defer close(done)
		defer stop()
		<-before.done
		r.live(runCtx, ctx, server, present)
	})
}

// live runs a server until the next change of its power, which cancels runCtx.
func (r *Rack) live(runCtx, rackCtx context.Context, server Server, present *run) {
	d := r.disks[server.Name]
	if d.install != present.power.Install {
		*d = disk{install: present.power.Install}
	}
	if !present.power.On || present.power.Install == "" {
		r.report(server.Name, Off, "", "")
		return
	}
	for runCtx.Err() == nil {
		bootCtx, reset := context.WithCancel(runCtx)
		r.mu.Lock()
		present.reset = reset
		r.mu.Unlock()
		b := &boot{
			id:     uuid.NewUUID(),
			server: server,
			disk:   d,
			config: r.config,
			report: func(state State, nodeName, reason string) { r.report(server.Name, state, nodeName, reason) },
		}
		b.run(bootCtx)
		<-bootCtx.Done()
		if rackCtx.Err() == nil {
			b.powerOff(rackCtx)
		}
	}
}

// report stores a server's status and calls OnChange.
func (r *Rack) report(name string, state State, nodeName, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.statuses[name]
	if status.State == state && status.Reason == reason && status.NodeName == nodeName {
		return
	}
	if status.State != state {
		status.State, status.Since = state, r.config.Clock.Now()
	}
	status.Reason, status.NodeName = reason, nodeName
	r.statuses[name] = status
	r.config.Logger.Info("server changed", "server", name, "state", state, "node", nodeName, "reason", reason)
	if r.config.OnChange != nil {
		r.config.OnChange(status)
	}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Server describes a server of the rack.
type Server struct {
	// Name of the server: that of its BareMetalHost.
	Name string
	// Architecture as in kubernetes.io/arch; amd64 if empty.
	Architecture string
	// Capacity of its hardware, in the units of a Node's status: cpu in cores, memory in bytes, accelerators by their
	// resource name. pods is 110, kubelet's own default, unless given.
	Capacity corev1.ResourceList
	// Devices that DRA drivers publish on it, once its Node has registered.
	Devices []v1alpha1.NodeTypeDevice
}

// State is what a server is doing.
type State string

const (
	// Off is a server without power, or with power and nothing installed on it.
	Off State = "Off"
	// Booting is a server that reads its config drive.
	Booting State = "Booting"
	// Joining is a server that tries to join the cluster that its user data names.
	Joining State = "Joining"
	// Registered: the Node of the server exists and reports its hardware.
	Registered State = "Registered"
	// Failed is a server that gave up. It does nothing until it is switched off.
	Failed State = "Failed"
)

// Status is the state of a server, and the reason.
type Status struct {
	Server string
	State  State
	// Reason is the last error, as one sentence; empty if there was none. It has no secrets.
	Reason string
	// NodeName is the name of the server's Node. Empty before the user data is read.
	NodeName string
	// Since is when State was entered.
	Since time.Time
}

// Power is the input of a server.
type Power struct {
	// On is true if the server has power.
	On bool
	// Install identifies the installation: it differs after each one, and is empty when the disk is empty. A server
	// that is switched on again with the same Install keeps its keys.
	Install string
}

// Source is where the servers' power and config drives come from.
type Source interface {
	// Watch calls changed with the power of every server, first and on each change, until the context is done, and then
	// returns nil. Calls for one server are in order. A server that is removed is off with an empty disk. An error
	// means that it could not watch.
	Watch(ctx context.Context, changed func(server string, power Power)) error
	// UserData reads the config drive of a server that is on. It returns ErrNoUserData, wrapped, if there is none and a
	// retry does not help.
	UserData(ctx context.Context, server string) ([]byte, error)
}
