// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet measures many tenants on one management cluster: what each program takes while nothing happens, in a burst of claims, when
// a rack fails, when the leading manager is killed, when all providers start again, and beside a tenant that is greedy and one that is
// broken.
//
// Real are: the management cluster's etcd and API server, two managers with leader election, the webhook, and of some tenants the API
// server and the provider, each a process with its own rights in config/rbac. Their API servers share an etcd. The other tenants are
// [cloudprovider.CloudProvider]s in the process of the test: the half of a provider that talks to the management cluster, with the same
// watches, by HTTP. They have no API server, no Karpenter and no pods, and are asked for servers as Karpenter asks. Metal3 is played by the
// test: it installs at once, and writes the status of each server once in a while. The processes of tenants have the lowest priority. All
// of it shares the cores of one machine, so figures in milliseconds hold for that machine alone; counts, bytes and processor time hold for
// others, too.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/management"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// A size is how big a fleet is, and how long it is looked at.
type size struct {
	// tenants in all, and processes of them with an API server and a provider of their own.
	tenants, processes int
	hosts              int
	// free servers that each tenant finds on average, wanted by each in the burst.
	free, wanted int
	// beat is how often Metal3 writes the status of each server.
	beat time.Duration
	// probes are claims that are made one after the other to see how long one takes, and pending are the pods of the greedy tenant.
	probes, pending int
}

const managers = 2

// fleet is one management cluster with its tenants.
type fleet struct {
	*management.Cluster
	size
	dir       string
	binaries  cluster.Binaries
	processes *process.Supervisor
	control   *cluster.Cluster
	raw       rest.Interface
	tenants   []tenant
	claims    *claims
	beats     atomic.Int64
	metrics   [managers]string
	probed    atomic.Int64
	phases    []*phase
}

// newFleet starts everything, and has all servers but the free ones claimed.
func newFleet(t testing.TB, wanted size) *fleet {
	t.Helper()
	f := &fleet{size: wanted, dir: t.TempDir(), binaries: cluster.Binaries{filepath.Join("..", "..", "bin")}}
	var err error
	if f.processes, err = process.NewSupervisor(process.Options{Dir: f.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.processes.Close)
	f.startManagement(t)
	f.say("%d servers", f.hosts)
	f.CreateInspectedHosts(t, f.hosts)
	f.PlayMetal3(t)
	f.claims = f.follow(t)
	f.startPrograms(t)
	f.awaitAvailable(t, f.hosts)
	f.describe(t)
	f.use(t)
	f.startTenants(t)
	f.beat(t)
	return f
}

func (f *fleet) say(format string, values ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", values...)
}

// pid of a process; zero if it does not run.
func (f *fleet) pid(name string) int {
	for _, info := range f.processes.List() {
		if info.Name == name {
			return info.PID
		}
	}
	return 0
}

// lowest is the priority that the processes of tenants have: in a real fleet they have machines of their own, and take no core from the
// management cluster. The normal one is 0.
const lowest = 19

// prioritize gives the processes of tenants a priority.
func (f *fleet) prioritize(priority int) error {
	var errs []error
	for _, info := range f.processes.List() {
		if strings.HasPrefix(info.Name, "tenant") && info.PID != 0 {
			errs = append(errs, syscall.Setpriority(syscall.PRIO_PGRP, info.PID, priority)) // each has a process group
		}
	}
	return errors.Join(errs...)
}

func (f *fleet) startManagement(t testing.TB) {
	t.Helper()
	etcd, err := cluster.StartEtcd(t.Context(), cluster.EtcdOptions{
		Name: managementEtcd, Dir: f.dir, Binaries: f.binaries, Processes: f.processes,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.control, err = cluster.Start(t.Context(), cluster.Options{
		Name: "management", Dir: f.dir, Binaries: f.binaries, Processes: f.processes, Etcd: etcd, Controllers: true,
		Prepare: func(ctx context.Context, c client.Client) error { return cluster.PrepareManagement(ctx, c, f.binaries) },
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Cluster = &management.Cluster{Environment: &env.Environment{Config: f.control.REST, Client: f.control.Client, Scheme: env.Scheme()}}
	clientset, err := kubernetes.NewForConfig(f.control.REST)
	if err != nil {
		t.Fatal(err)
	}
	f.raw = clientset.RESTClient()
	f.Fill(t, nil)
}

// startPrograms starts the webhook, and the managers with leader election.
func (f *fleet) startPrograms(t testing.TB) {
	t.Helper()
	kubeconfigs := map[string]string{}
	for user, file := range map[string]string{cluster.ManagerUser: "manager.yaml", cluster.WebhookUser: "webhook.yaml"} {
		kubeconfigs[user] = filepath.Join(f.dir, user+".kubeconfig")
		if err := f.control.Grant(t.Context(), user, metav1.NamespaceDefault, kubeconfigs[user], file); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.control.StartWebhook(t.Context(), kubeconfigs[cluster.WebhookUser], process.Spec{
		Name: webhookProcess, Restart: true, Args: []string{"--metrics-bind-address=0"},
	}); err != nil {
		t.Fatal(err)
	}
	for n := range managers {
		address := freeport.ForTest(t)
		f.metrics[n] = "http://" + address + "/metrics"
		if err := f.control.StartProgram(t.Context(), "manager", process.Spec{
			Name: managerName(n), Restart: true, Args: []string{
				"--kubeconfig=" + kubeconfigs[cluster.ManagerUser], "--metrics-secure=false", "--metrics-bind-address=" + address,
				"--unused-claims-per-hour=0", // the claims that measure are given back at once
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func managerName(n int) string { return fmt.Sprintf("%d-%s", n, managerProcess) }

// leader returns which manager leads.
func (f *fleet) leader(t testing.TB) (leader int) {
	t.Helper()
	poll.Eventually(t, "a manager leads", func(ctx context.Context) error {
		for n, url := range f.metrics {
			metrics, err := management.ReadMetrics(ctx, url)
			if err != nil {
				continue
			}
			for name, value := range metrics {
				if strings.HasPrefix(name, "leader_election_master_status{") && value == 1 {
					leader = n
					return nil
				}
			}
		}
		return errors.New("none says so")
	})
	return leader
}

// awaitAvailable waits until the statuses of the NodeTypes say so.
func (f *fleet) awaitAvailable(t testing.TB, servers int) {
	t.Helper()
	f.awaitCapacity(t, fmt.Sprintf("%d servers are available", servers), func(all v1alpha1.Capacity) bool {
		return int(all.Available) == servers
	})
}

func (f *fleet) awaitCapacity(t testing.TB, what string, reached func(all v1alpha1.Capacity) bool) {
	t.Helper()
	poll.Eventually(t, what, func(ctx context.Context) error {
		types, all := &v1alpha1.NodeTypeList{}, v1alpha1.Capacity{}
		if err := f.Client.List(ctx, types); err != nil {
			return err
		}
		for i := range types.Items {
			counted := &types.Items[i].Status.Capacity
			all.Total, all.Available = all.Total+counted.Total, all.Available+counted.Available
		}
		if !reached(all) {
			return fmt.Errorf("the NodeTypes count %+v", all)
		}
		return nil
	})
}

// startTenants starts the tenants: first those with processes.
func (f *fleet) startTenants(t testing.TB) {
	t.Helper()
	f.say("%d tenants, %d of them with an API server and a provider of their own", f.size.tenants, f.size.processes)
	etcd, err := cluster.StartEtcd(t.Context(), cluster.EtcdOptions{
		Name: "tenants-etcd", Dir: f.dir, Binaries: f.binaries, Processes: f.processes,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.tenants = make([]tenant, f.size.tenants)
	management.EachOf(t, 2, f.size.tenants, func(ctx context.Context, n int) (err error) {
		base := tenantBase{fleet: f, name: tenantName(n)}
		if n < f.size.processes {
			f.tenants[n], err = startProcess(ctx, base, etcd)
		} else {
			f.tenants[n], err = startInside(ctx, base)
		}
		return err
	})
	if err := f.prioritize(lowest); err != nil {
		t.Fatalf("lowering the priority of the tenants' programs, %v", err)
	}
	t.Cleanup(func() {
		for _, tenant := range f.tenants {
			if inside, ok := tenant.(*insideTenant); ok {
				if err := inside.stop(); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

func tenantName(n int) string { return fmt.Sprintf("tenant-%03d", n) }

// describe creates the namespaces and the TenantClusters. The first tenant has a quota: it will be the greedy one.
func (f *fleet) describe(t testing.TB) {
	t.Helper()
	management.Each(t, f.size.tenants, func(ctx context.Context, n int) error {
		name := tenantName(n)
		described := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
		described.Spec.APIServerEndpoint = name + ".example.com:6443"
		if n == greedy {
			quota := int64(f.wanted)
			described.Spec.Quota = &v1alpha1.Quota{Servers: &quota}
		}
		return errors.Join(
			f.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}),
			f.Client.Create(ctx, described),
		)
	})
}

// use has the tenants without processes have all but the free servers. The providers of the others would delete Machines that no NodeClaim
// of theirs has made.
func (f *fleet) use(t testing.TB) {
	t.Helper()
	free, inside := f.free*f.size.tenants, f.size.tenants-f.size.processes
	f.say("claiming %d servers", f.hosts-free)
	management.Each(t, f.hosts-free, func(ctx context.Context, n int) error {
		machine := management.Machine(n)
		machine.Namespace = tenantName(f.size.processes + n%inside)
		machine.Spec.NodeTypeRef, machine.Spec.Resources = nil, gpus
		machine.Spec.TenantClusterRef.Name = machine.Namespace
		return f.Client.Create(ctx, machine)
	})
	f.awaitAvailable(t, free)
}

// beat has Metal3 write the status of each server in turn, until the test ends.
func (f *fleet) beat(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	group := &errgroup.Group{}
	group.SetLimit(8)
	group.Go(func() error {
		limit := rate.NewLimiter(rate.Every(f.size.beat/time.Duration(f.hosts)), 1)
		for n := 0; limit.Wait(ctx) == nil; n++ {
			group.Go(func() error {
				err := f.Touch(ctx, &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
					Namespace: management.HostsNamespace, Name: management.HostName(n % f.hosts),
				}}, n)
				f.beats.Add(1)
				if ctx.Err() != nil {
					return nil
				}
				return err
			})
		}
		return nil
	})
	t.Cleanup(func() {
		stop()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// claims are what a watch of all Machines has seen.
type claims struct {
	mu      sync.Mutex
	created map[client.ObjectKey]time.Time
	took    []time.Duration
	claimed int
	waiting map[client.ObjectKey]chan time.Time
}

// follow watches the Machines of all tenants.
func (f *fleet) follow(t testing.TB) *claims {
	t.Helper()
	all := &claims{created: map[client.ObjectKey]time.Time{}, waiting: map[client.ObjectKey]chan time.Time{}}
	informers, err := cache.New(f.Config, cache.Options{Scheme: f.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { _ = informers.Start(ctx) }) // fails only if it is started twice
	t.Cleanup(func() { stop(); following.Wait() })
	if _, _, err := kube.Watch(ctx, informers, &v1alpha1.Machine{}, kube.Handler(all.see, nil)); err != nil {
		t.Fatal(err)
	}
	return all
}

func (c *claims) see(machine *v1alpha1.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, now := client.ObjectKeyFromObject(machine), time.Now()
	created, known := c.created[key]
	switch {
	case machine.DeletionTimestamp != nil:
		delete(c.created, key)
	case machine.Status.HostRef == nil && !known:
		c.created[key] = now
	case machine.Status.HostRef != nil && (!known || !created.IsZero()):
		c.claimed++
		if known { // else it had been claimed when it was first seen
			c.took = append(c.took, now.Sub(created))
		}
		c.created[key] = time.Time{} // counted
		if waiting := c.waiting[key]; waiting != nil {
			waiting <- now
			delete(c.waiting, key)
		}
	}
}

func (c *claims) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claimed
}

// await returns what receives the time of the claim of a Machine.
func (c *claims) await(key client.ObjectKey) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := make(chan time.Time, 1)
	c.waiting[key] = waiting
	return waiting
}

// reset returns how long the claims since the last reset took.
func (c *claims) reset() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	c.took = nil
	return took
}
