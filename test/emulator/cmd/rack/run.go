// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/admin"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/baremetal"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/bmc"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/ipmi"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
)

// headerTimeout bounds how long a client may take to send its headers.
const headerTimeout = 30 * time.Second

func run(ctx context.Context, o *options) error {
	if err := o.complete(); err != nil {
		return err
	}
	described, err := scenario.Load(o.scenario)
	if err != nil {
		return err
	}
	r := &rack{options: o, logger: logr.FromContextOrDiscard(ctx), failed: make(chan error, 1)}
	defer r.close()
	if err := r.build(described); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, server := range r.servers {
		running.Go(func() { server.Run(ctx) })
	}
	for _, simulator := range r.simulators {
		running.Go(func() {
			if err := simulator.Run(ctx); err != nil {
				r.fail(err)
			}
		})
	}
	// The servers are stopped first, while their BMCs still answer. All their processes have ended when this returns.
	defer running.Wait()
	defer cancel()
	r.logger.Info("Rack is ready", "servers", len(r.servers), "admin", "http://"+r.admin)
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.failed:
		return err
	}
}

// rack has the servers and their HTTP servers.
type rack struct {
	options *options
	logger  logr.Logger
	servers []admin.Server
	// simulators are the BMCs of servers behind IPMI.
	simulators []ipmi.Simulator
	// admin is the address of the admin API.
	admin  string
	serves []*http.Server
	// processes are those of the simulators; nil if there are none.
	processes *process.Supervisor
	failed    chan error
}

func (r *rack) build(described *scenario.Scenario) error {
	options := baremetal.Options{
		IronicURL: r.options.ironicURL, AgentHost: r.options.agentHost, Heartbeat: r.options.heartbeat, Retry: r.options.retry,
		NetworkBoot: r.options.networkBoot, BootCommand: r.options.bootCommand, Grace: r.options.grace, Clock: clock.RealClock{},
		Logger: r.logger,
	}
	// Servers by the address of their BMC; those without one of their own share that of the rack.
	byAddress := map[string][]*baremetal.Server{}
	for _, d := range described.Servers {
		dir := filepath.Join(r.options.dataDir, d.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making the disk of server %s, %w", d.Name, err)
		}
		identity := bmc.Identity{Name: d.Name, UUID: d.UUID, Username: d.BMC.Username, Password: d.BMC.Password}
		options.Machine = d.Machine
		if d.Machine && options.BootCommand == "" {
			return fmt.Errorf("server %s has machine: true, and --boot-command is empty: it must be the program that is the machine", d.Name)
		}
		server := baremetal.New(options, identity, *d.Hardware, dir)
		for _, fault := range d.Faults {
			if err := server.Faults().Put(fault); err != nil {
				return fmt.Errorf("server %s, %w", d.Name, err)
			}
		}
		url := ""
		if d.BMC.Protocol == scenario.IPMI {
			address, err := udpAddress(d.BMC.BindAddress)
			if err != nil {
				return fmt.Errorf("server %s, %w", d.Name, err)
			}
			url = "ipmi://" + reachable(address)
			r.simulators = append(r.simulators, ipmi.Simulator{Program: r.options.ipmiSim, Identity: identity, Address: address,
				Dir: filepath.Join(r.options.dataDir, ipmiDir, d.Name), Faults: server.Faults()})
		} else {
			address := cmp.Or(d.BMC.BindAddress, r.options.redfishAddress)
			byAddress[address] = append(byAddress[address], server)
		}
		r.servers = append(r.servers, admin.Server{Server: server, URL: url})
	}
	for address, servers := range byAddress {
		systems := make([]*bmc.System, 0, len(servers))
		for _, server := range servers {
			systems = append(systems, server.System())
		}
		bound, err := r.serve("Redfish", address, bmc.NewService(clock.RealClock{}, systems...))
		if err != nil {
			return err
		}
		for i, server := range r.servers {
			if slices.Contains(servers, server.Server) {
				r.servers[i].URL = "http://" + reachable(bound) + server.System().Path()
			}
		}
	}
	bound, err := r.serve("the admin API", r.options.adminAddress, admin.New(r.servers...))
	if err != nil {
		return err
	}
	r.admin = reachable(bound)
	return r.completeSimulators()
}

// ipmiDir is the directory of the simulators among those of the servers. It cannot be the name of a server.
const ipmiDir = ".ipmi"

// udpAddress returns the address, or a free one of loopback if it is empty.
func udpAddress(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	return freeport.Address()
}

// completeSimulators gives the simulators what they share: the program that controls a chassis is this one.
func (r *rack) completeSimulators() error {
	if len(r.simulators) == 0 {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, %w", err)
	}
	r.processes, err = process.NewSupervisor(process.Options{
		Dir: filepath.Join(r.options.dataDir, ipmiDir), OnExit: func(exit process.Exit) { r.fail(exit) },
	})
	if err != nil {
		return err
	}
	for i := range r.simulators {
		r.simulators[i].Supervisor = r.processes
		r.simulators[i].ChassisControl = fmt.Sprintf("'%s' %s http://%s/v1/servers/%s/chassis", program, chassisCommand, r.admin,
			r.simulators[i].Identity.Name)
	}
	return nil
}

// fail ends the rack with an error, the first one.
func (r *rack) fail(err error) {
	select {
	case r.failed <- err:
	default: // the rack ends already
	}
}

// reachable returns an address that others can use: of a port of all addresses, the one at the name of this machine.
func reachable(bound string) string {
	parsed, err := netip.ParseAddrPort(bound)
	if err != nil || !parsed.Addr().IsUnspecified() {
		return bound
	}
	name, err := os.Hostname()
	if err != nil {
		return bound
	}
	return net.JoinHostPort(name, strconv.Itoa(int(parsed.Port())))
}

// serve starts to answer at an address and returns the one that it is bound to.
func (r *rack) serve(what, address string, handler http.Handler) (string, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("serving %s, %w", what, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	r.serves = append(r.serves, server)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.fail(fmt.Errorf("serving %s, %w", what, err))
		}
	}()
	r.logger.Info("Serving "+what, "address", listener.Addr().String())
	return listener.Addr().String(), nil
}

func (r *rack) close() {
	if r.processes != nil {
		r.processes.Close()
	}
	for _, server := range r.serves {
		// Pending calls are cut off.
		_ = server.Close()
	}
}
