// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/process"
)

// Config of an Environment.
type Config struct {
	// Dir holds everything: certificates, data, logs.
	Dir      string
	Binaries controlplane.Binaries
	// Tenants are the names of the tenant clusters, of their namespaces on the host, and of their TenantClusters.
	Tenants []string
	// Nodes are the names of the host's Nodes. Without any, the host has no scheduler, and tests allocate claims
	// themselves.
	Nodes []string
}

// Cluster is one control plane.
type Cluster struct {
	*controlplane.Cluster
	// Client is the administrator's, and reads from the API server.
	Client client.Client
	name   string
}

// Tenant is a tenant cluster.
type Tenant struct {
	*Cluster
	// Name is that of the TenantCluster and of its namespace on the host.
	Name string

	environment *Environment
}

// Environment is a host and its tenants.
type Environment struct {
	Host    *Cluster
	Tenants []*Tenant

	config     Config
	scheme     *runtime.Scheme
	supervisor *process.Supervisor
	etcd       *controlplane.Etcd
	closers    []io.Closer
	// webhookReady is the URL of the webhook's probe.
	webhookReady string

	ctx        context.Context
	background *errgroup.Group
	cancel     context.CancelFunc
}

// Programs returns an error that names the first program that is missing: of those of each Environment, and of more.
func Programs(binaries controlplane.Binaries, more ...string) error {
	for _, name := range append([]string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"}, more...) {
		if _, err := binaries.Find(name); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the control planes and returns when all of them serve. The Environment must be closed, also after an error.
func Start(ctx context.Context, config Config) (*Environment, error) {
	w := &Environment{config: config, scheme: env.Scheme()}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.background, w.ctx = errgroup.WithContext(w.ctx)
	var err error
	w.supervisor, err = process.NewSupervisor(process.Options{Dir: config.Dir, OnExit: func(exit process.Exit) {
		lines, _ := process.LastLines(exit.LogFile, 5)
		fmt.Fprintf(os.Stderr, "%s died: %s\n%s\n", exit.Name, exit.Reason, strings.Join(lines, "\n"))
	}})
	if err != nil {
		return w, err
	}
	ports, err := controlplane.FreePorts(3 + len(config.Tenants))
	if err != nil {
		return w, err
	}
	w.etcd, err = controlplane.StartEtcd(ctx, controlplane.EtcdConfig{
		Dir: filepath.Join(config.Dir, "etcd"), Binaries: config.Binaries, Supervisor: w.supervisor, Clock: clock.RealClock{},
		ClientPort: ports[0], PeerPort: ports[1],
	})
	if err != nil {
		return w, err
	}
	if w.Host, err = w.cluster("host", ports[2], len(config.Nodes) > 0); err != nil {
		return w, err
	}
	for i, name := range config.Tenants {
		cluster, err := w.cluster(name, ports[3+i], false)
		if err != nil {
			return w, err
		}
		w.Tenants = append(w.Tenants, &Tenant{Cluster: cluster, Name: name, environment: w})
	}
	group, groupCtx := errgroup.WithContext(ctx)
	// Starting takes a core for seconds; starting all at once would delay all of them.
	group.SetLimit(4)
	group.Go(func() error { return w.startHost(groupCtx) })
	for _, tenant := range w.Tenants {
		group.Go(func() error { return w.startTenant(groupCtx, tenant) })
	}
	if err := group.Wait(); err != nil {
		return w, err
	}
	return w, nil
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

func (w *Environment) cluster(name string, port int, nodes bool) (*Cluster, error) {
	flags, err := audit.Flags(os.Getenv(audit.DirectoryVariable), name)
	if err != nil {
		return nil, err
	}
	cluster, err := controlplane.New(controlplane.Config{
		Name: name, Dir: filepath.Join(w.config.Dir, name), Kubeconfig: filepath.Join(w.config.Dir, name+".kubeconfig"),
		Binaries: w.config.Binaries, Supervisor: w.supervisor, Clock: clock.RealClock{}, Etcd: w.etcd, Port: port, Nodes: nodes,
		APIServerFlags: flags,
	})
	if err != nil {
		return nil, err
	}
	cluster.REST.QPS = -1
	return &Cluster{Cluster: cluster, name: name}, nil
}

// startTenant starts a tenant's API server. Of the tenant's controllers only that of service accounts runs; pods of
// tenants run on the host.
func (w *Environment) startTenant(ctx context.Context, tenant *Tenant) error {
	if err := tenant.StartAPIServer(ctx); err != nil {
		return err
	}
	var err error
	if tenant.Client, err = client.New(tenant.REST, client.Options{Scheme: w.scheme}); err != nil {
		return fmt.Errorf("making a client of %s, %w", tenant.Name, err)
	}
	if len(w.config.Nodes) == 0 {
		return nil
	}
	return tenant.StartControllers(ctx)
}

func (w *Environment) startHost(ctx context.Context) error {
	if err := w.Host.StartAPIServer(ctx); err != nil {
		return err
	}
	var err error
	if w.Host.Client, err = client.New(w.Host.REST, client.Options{Scheme: w.scheme}); err != nil {
		return fmt.Errorf("making a client of the host, %w", err)
	}
	if err := w.installCRDs(ctx); err != nil {
		return err
	}
	for _, name := range w.config.Tenants {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := w.Host.Client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating namespace %s, %w", name, err)
		}
	}
	if err := w.startManager(); err != nil {
		return err
	}
	if len(w.config.Nodes) == 0 {
		return nil
	}
	if err := w.Host.StartControllers(ctx); err != nil {
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
