// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stack runs a management cluster of real parts: etcd and kube-apiserver, baremetal-operator, Ironic, and our
// manager with its rights of config/rbac. Only the metal is emulated, by a rack of servers that speak Redfish or IPMI
// (test/emulator/cmd/rack). Everything runs on loopback and in one directory, and ends with the stack. For a management
// cluster that exists, such as one of kind, only Ironic and the operator run, for a rack elsewhere.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/ironic"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/web"
)

const (
	// HostsNamespace is where the BareMetalHosts and the credentials of their BMCs are.
	HostsNamespace = "metal3-system"
	// MachinesNamespace is where Machines can be made. The tenant, if there is one, has the same name, for test/e2e to find it.
	MachinesNamespace = "tenant-a"

	// startTimeout bounds how long the start of all parts may take. A machine that is busy takes a while.
	startTimeout = 5 * time.Minute
)

// Config says what to start.
type Config struct {
	// Dir is where everything goes: certificates, data, logs, what the servers are given. It is made.
	Dir string
	// Bin is the directory that has the programs, and Ironic's tree.
	Bin string
	// Scenario is the file that describes the rack: its servers, and what is wrong with them.
	Scenario string
	// BootCommand is what a server runs when it boots its image; empty runs nothing.
	BootCommand string
	// Management is the path of an administrator's kubeconfig file of a management cluster that exists. Then only Ironic, the image
	// server and the operator are started: the rack is elsewhere, and so are our programs. Empty starts a cluster.
	Management string
	// Host is the name or address at which a rack elsewhere, or servers that are machines, reach Ironic and the image server; empty means
	// web.Loopback.
	Host string
	// Provisioning are the networks that servers boot by, which reach the address Host; none if the rack emulates the boot of all servers.
	// What they boot is in Bin.
	Provisioning []ironic.Provisioning
	// Guard is between agents and Ironic; may be nil.
	Guard func(http.Handler) http.Handler
	// ManagerFlags are further flags of our manager.
	ManagerFlags []string
	// AgentTimeout and PowerTimeout are Ironic's; zero means what package ironic says.
	AgentTimeout, PowerTimeout time.Duration
	// Progress is called when a part is ready; may be nil.
	Progress func(format string, args ...any)
}

// A Stack is a running management cluster. It must be closed.
type Stack struct {
	// Client is the administrator's. It reads from the API server itself.
	Client client.WithWatch
	// REST is the administrator's access. Callers copy it before they change it.
	REST *rest.Config
	// Kubeconfig is the path of the administrator's kubeconfig file.
	Kubeconfig string
	// Ironic is where agents and baremetal-operator find Ironic.
	Ironic *ironic.Ironic
	// Media serves disk images, and what servers boot before they have one.
	Media *Media
	// Rack is the administrator's access to the emulated servers; nil if they are elsewhere.
	Rack *Rack
	// Processes gives access to all programs, to look at, stop or kill one.
	Processes *process.Supervisor

	config  Config
	cluster *cluster.Cluster

	// ctx ends when the stack is closed, or when one of its parts has failed for good, which is then the cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Missing returns an error with what a stack needs and is missing, and how to get it. It starts nothing.
func Missing(bin string) error {
	return errors.Join(ironic.Check(filepath.Join(bin, "ironic")),
		cluster.Binaries{bin}.Missing("etcd", "kube-apiserver", "kube-controller-manager", operatorName, managerName, rackName))
}

// Start starts a stack, and returns when all of it works and the operator and the manager watch. No server is
// registered. On an error, everything is stopped, and the error ends with the end of the failed program's log.
func Start(ctx context.Context, config Config) (*Stack, error) {
	if config.Progress == nil {
		config.Progress = func(string, ...any) {}
	}
	config.Host = cmp.Or(config.Host, web.Loopback)
	s := &Stack{config: config}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := s.up(ctx); err != nil {
		if cause := context.Cause(s.ctx); cause != nil {
			err = cause
		}
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) up(caller context.Context) error {
	// HOME of the programs.
	for _, dir := range []string{"home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.config.Dir, dir), 0o700); err != nil {
			return fmt.Errorf("making a directory of the stack, %w", err)
		}
	}
	var err error
	s.Processes, err = process.NewSupervisor(process.Options{
		Dir: s.config.Dir,
		// That fails the stack: restarts are not tested here.
		OnExit: func(exit process.Exit) { s.cancel(exit) },
	})
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeoutCause(s.ctx, startTimeout, fmt.Errorf("the stack was not up after %s", startTimeout))
	defer done()
	stop := context.AfterFunc(caller, func() { s.cancel(context.Cause(caller)) })
	defer stop()
	parts := []func(context.Context) error{s.startCluster, s.readScenario, s.startIronic, s.startRack, s.startOperator, s.startManager}
	if s.config.Management != "" {
		parts = []func(context.Context) error{s.useCluster, s.startIronic, s.startOperator}
	}
	for _, start := range parts {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Context returns a context that ends with the given one, or when a part of the stack has failed, which is then its cause.
// The caller must call the function that comes with it.
func (s *Stack) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Close stops everything in the order of dependencies, and returns when all processes have ended. Files stay.
func (s *Stack) Close() error {
	s.cancel(errors.New("the stack is closed"))
	if s.Processes != nil {
		s.Processes.Close()
	}
	var errs []error
	if s.Ironic != nil {
		errs = append(errs, s.Ironic.Close())
	}
	if s.Media != nil {
		errs = append(errs, s.Media.Close())
	}
	return errors.Join(errs...)
}

// startCluster starts the management cluster: an API server and the garbage collector.
func (s *Stack) startCluster(ctx context.Context) error {
	binaries := cluster.Binaries{s.config.Bin}
	var err error
	s.cluster, err = cluster.Start(ctx, cluster.Options{
		Name: "management", Dir: s.config.Dir, Binaries: binaries, Processes: s.Processes, Controllers: true,
		Prepare: func(ctx context.Context, c client.Client) error {
			return cluster.PrepareManagement(ctx, c, binaries, HostsNamespace, MachinesNamespace)
		},
	})
	if err != nil {
		return err
	}
	s.REST, s.Kubeconfig, s.Client = s.cluster.REST, s.cluster.Kubeconfig, s.cluster.Client
	s.config.Progress("the management cluster has the CRDs of Metal3 and ours")
	return nil
}

// useCluster makes a client of the management cluster that exists, and installs the CRDs of Metal3 there.
func (s *Stack) useCluster(ctx context.Context) error {
	var err error
	s.Kubeconfig = s.config.Management
	if s.REST, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig); err != nil {
		return fmt.Errorf("reading the kubeconfig of the management cluster, %w", err)
	}
	if s.Client, err = client.NewWithWatch(s.REST, client.Options{Scheme: env.Scheme()}); err != nil {
		return fmt.Errorf("making a client of the management cluster, %w", err)
	}
	if err := cluster.PrepareMetal3(ctx, s.Client, cluster.Binaries{s.config.Bin}, HostsNamespace); err != nil {
		return err
	}
	s.config.Progress("the management cluster has the CRDs of Metal3")
	return nil
}
