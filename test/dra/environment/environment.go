// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package environment runs the clusters for tests of the sync of Dynamic Resource Allocation: a host, which is the
// management cluster, with the real scheduler, the real controllers, nodes and devices, and the control planes of
// tenants whose pods run there. It emulates a driver that publishes devices, and either runs vCluster's pod syncer or
// emulates it.
package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/tenantcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/audit"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// Config of an Environment.
type Config struct {
	// Dir holds everything: certificates, data, logs.
	Dir      string
	Binaries cluster.Binaries
	// Tenants are the names of the tenant clusters, of their namespaces on the host, and of their TenantClusters.
	Tenants []string
	// Nodes are the names of the host's Nodes. Without any, the host has no scheduler, and tests allocate claims
	// themselves.
	Nodes []string
}

// Tenant is a tenant cluster.
type Tenant struct {
	*cluster.Cluster
	// Name is that of the TenantCluster and of its namespace on the host.
	Name string

	environment *Environment
	// syncer is the tenant's vCluster, nil if it has none.
	syncer *syncer
}

// Environment is a host and its tenants.
type Environment struct {
	Host    *cluster.Cluster
	Tenants []*Tenant

	config     Config
	scheme     *runtime.Scheme
	supervisor *process.Supervisor
	closers    []io.Closer

	ctx        context.Context
	background *errgroup.Group
	cancel     context.CancelFunc
}

// Programs returns an error that names the programs that are missing: of those of each Environment, and of more.
func Programs(binaries cluster.Binaries, more ...string) error {
	usual := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm", "kwok", "kubectl"}
	return binaries.Missing(slices.Concat(usual, more)...)
}

// Start starts the control planes and returns when all of them serve. The Environment must be closed, also after an error.
func Start(ctx context.Context, config Config) (*Environment, error) {
	w := &Environment{config: config, scheme: env.Scheme()}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.background, w.ctx = errgroup.WithContext(w.ctx)
	var err error
	w.supervisor, err = process.NewSupervisor(process.Options{Dir: config.Dir, OnExit: func(exit process.Exit) {
		fmt.Fprintln(os.Stderr, exit)
	}})
	if err != nil {
		return w, err
	}
	etcd, err := cluster.StartEtcd(ctx, cluster.EtcdOptions{Dir: config.Dir, Binaries: config.Binaries, Processes: w.supervisor})
	if err != nil {
		return w, err
	}
	for _, name := range config.Tenants {
		w.Tenants = append(w.Tenants, &Tenant{Name: name, environment: w})
	}
	group, groupCtx := errgroup.WithContext(ctx)
	// Starting takes a core for seconds; starting all at once would delay all of them.
	group.SetLimit(4)
	group.Go(func() error { return w.startHost(groupCtx, etcd) })
	for _, tenant := range w.Tenants {
		group.Go(func() (err error) {
			tenant.Cluster, err = w.start(groupCtx, tenant.Name, etcd, cluster.Options{Controllers: len(config.Nodes) > 0})
			return err
		})
	}
	return w, group.Wait()
}

// Close ends all processes.
func (w *Environment) Close() error {
	w.cancel()
	err := w.background.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if w.supervisor != nil {
		w.supervisor.Close()
	}
	for _, closer := range w.closers {
		err = errors.Join(err, closer.Close())
	}
	return err
}

// Dir returns the directory of all files.
func (w *Environment) Dir() string { return w.config.Dir }

// Tenant returns the tenant of a name, which must be one of the Config's.
func (w *Environment) Tenant(name string) *Tenant {
	return w.Tenants[slices.Index(w.config.Tenants, name)]
}

// Processes returns what runs the programs of the Environment, for tests that stop and start them.
func (w *Environment) Processes() *process.Supervisor { return w.supervisor }

// Log returns the last lines of the log of a process.
func (w *Environment) Log(name string, lines int) string {
	info := w.supervisor.List()
	for i := range info {
		if info[i].Name == name {
			last, err := process.LastLines(info[i].LogFile, lines)
			if err != nil {
				return err.Error()
			}
			return strings.Join(last, "\n")
		}
	}
	return "no process " + name
}

// start starts a cluster. Of a tenant's controllers only that of service accounts runs; pods of tenants run on the host.
func (w *Environment) start(ctx context.Context, name string, etcd *cluster.Etcd, options cluster.Options) (*cluster.Cluster, error) {
	flags, err := audit.Flags(os.Getenv(audit.DirectoryVariable), name)
	if err != nil {
		return nil, err
	}
	options.Name, options.Dir, options.Etcd, options.APIServerFlags = name, w.config.Dir, etcd, flags
	options.Binaries, options.Processes = w.config.Binaries, w.supervisor
	return cluster.Start(ctx, options)
}

func (w *Environment) startHost(ctx context.Context, etcd *cluster.Etcd) (err error) {
	w.Host, err = w.start(ctx, "host", etcd, cluster.Options{
		Nodes: len(w.config.Nodes) > 0,
		// The webhook watches servers, too.
		Prepare: func(ctx context.Context, c client.Client) error {
			return cluster.PrepareManagement(ctx, c, w.config.Binaries, w.config.Tenants...)
		},
	})
	if err != nil {
		return err
	}
	if err := w.startManager(); err != nil {
		return err
	}
	return w.startNodes(ctx)
}

// startManager starts that part of the manager without which no provider writes anything.
func (w *Environment) startManager() error {
	mgr, err := ctrl.NewManager(w.Host.REST, manager.Options{Scheme: w.scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}})
	if err != nil {
		return fmt.Errorf("making a manager of the host, %w", err)
	}
	controller := tenantcluster.NewController(mgr.GetClient(), mgr.GetAPIReader(), &events.FakeRecorder{}, clock.RealClock{})
	if err := controller.Register(w.ctx, mgr); err != nil {
		return err
	}
	w.background.Go(func() error { return mgr.Start(w.ctx) })
	return nil
}
