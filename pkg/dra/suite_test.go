// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configpolicy "github.com/karpenter-provider-metal3/karpenter-provider-metal3/config/policy"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/tenantcluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// hostEnvironment and tenantEnvironment are two real API servers, which are not connected.
var hostEnvironment, tenantEnvironment *env.Environment

// suite stands in for a test where there is none yet.
type suite struct {
	testing.TB
	mu       sync.Mutex
	cleanups []func()
}

func (s *suite) Helper() {}
func (s *suite) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}
func (s *suite) Fatal(args ...any) { s.end(fmt.Sprintln(args...)) }
func (s *suite) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "error: "+format+"\n", args...)
}

func (s *suite) end(message string) {
	fmt.Fprint(os.Stderr, "error: ", message)
	s.stop()
	os.Exit(1)
}

func (s *suite) stop() {
	for _, cleanup := range s.cleanups {
		cleanup()
	}
}

func TestMain(m *testing.M) {
	s := &suite{}
	var starting sync.WaitGroup
	starting.Go(func() { hostEnvironment = env.NewEnvironment(s) })
	starting.Go(func() { tenantEnvironment = env.NewEnvironment(s) })
	starting.Wait()
	policies, err := configpolicy.Management(configpolicy.Options{})
	if err != nil {
		s.end(err.Error())
	}
	for _, policy := range policies { // they hold for the user of our roles
		if err := hostEnvironment.Client.Create(context.Background(), policy); err != nil {
			s.end(err.Error())
		}
	}
	stop, err := runManager()
	if err != nil {
		s.end(err.Error())
	}
	code := m.Run()
	stop()
	s.stop()
	os.Exit(code)
}

// hostManager is the life of the manager on the host.
var hostManager = immortal()

// runManager runs that part of the manager which says what a policy lets the provider create.
func runManager() (stop func(), err error) {
	skip := true
	m, err := controllerruntime.NewManager(hostEnvironment.Config, manager.Options{Scheme: hostEnvironment.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip}})
	if err != nil {
		return nil, fmt.Errorf("making a manager of the host, %w", err)
	}
	kube := spy{Client: m.GetClient(), process: hostManager, cluster: "host"}
	controller := tenantcluster.NewController(kube, m.GetAPIReader(), &events.FakeRecorder{}, clock.RealClock{})
	if err := controller.Register(context.Background(), m); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- m.Start(ctx) }()
	return func() {
		cancel()
		if err := <-stopped; err != nil {
			fmt.Fprintln(os.Stderr, "error: running the manager of the host,", err)
		}
	}, nil
}

var fixtures atomic.Int64

// fixture is one tenant, with a namespace of its own on the host and one in its cluster.
type fixture struct {
	*testing.T
	host, tenant client.Client
	environment  *env.Environment
	cluster      types.NamespacedName
	// namespace is the tenant's namespace that its objects are in.
	namespace string
	events    *eventLog
	// class is a class on the host that the tenant may ask for, once the controllers run.
	class string
	// memory: there are no API servers.
	memory bool
}

// newFixture makes a tenant with the sync of everything enabled, for classes with the label "for" of the test. The
// tenant's cluster and the host's classes are empty.
func newFixture(t *testing.T, change ...func(*v1alpha1.Sync)) *fixture {
	t.Helper()
	return newFixtureIn(t, tenantEnvironment, hostEnvironment.Namespace(t), "blue", change...)
}

func newFixtureIn(t *testing.T, environment *env.Environment, hostNamespace, name string, change ...func(*v1alpha1.Sync)) *fixture {
	t.Helper()
	w := &fixture{
		T: t, host: hostEnvironment.Client, tenant: environment.Client, environment: environment, events: &eventLog{},
		cluster: types.NamespacedName{Namespace: hostNamespace, Name: name}, class: fmt.Sprintf("gpu-%d", fixtures.Add(1)),
	}
	w.namespace = environment.Namespace(t)
	t.Cleanup(w.wipe)
	grant(t, w.host, "provider-dra-management.yaml", hostNamespace)
	grant(t, w.tenant, "provider-dra-tenant.yaml", "")
	w.createCluster(change...)
	w.createClass(w.class, nil)
	return w
}

func (w *fixture) labels() map[string]string {
	return map[string]string{"for": w.cluster.Name + "-" + w.class}
}

func (w *fixture) createCluster(change ...func(*v1alpha1.Sync)) {
	w.Helper()
	cluster := &v1alpha1.TenantCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster.Namespace, Name: w.cluster.Name},
		Spec: v1alpha1.TenantClusterSpec{APIServerEndpoint: "192.0.2.10:6443", Sync: v1alpha1.Sync{
			FromHost: v1alpha1.SyncFromHost{DeviceClasses: v1alpha1.DeviceClassSync{
				SyncSwitch: v1alpha1.SyncSwitch{Enabled: true}, Selector: &metav1.LabelSelector{MatchLabels: w.labels()},
			}},
			ToHost: v1alpha1.SyncToHost{ResourceClaims: v1alpha1.ClaimSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: true}},
				ResourceClaimTemplates: v1alpha1.ClaimSync{SyncSwitch: v1alpha1.SyncSwitch{Enabled: true}}},
		}},
	}
	for _, change := range change {
		change(&cluster.Spec.Sync)
	}
	w.must(w.host.Create(w.Context(), cluster))
}

// setSync changes the TenantCluster's settings.
func (w *fixture) setSync(change func(*v1alpha1.Sync)) {
	w.Helper()
	cluster := &v1alpha1.TenantCluster{}
	w.must(w.host.Get(w.Context(), w.cluster, cluster))
	stored := cluster.DeepCopy()
	change(&cluster.Spec.Sync)
	w.must(w.host.Patch(w.Context(), cluster, client.MergeFrom(stored)))
}

// condition returns the TenantCluster's condition as "Reason: message", empty if there is none.
func (w *fixture) condition() string {
	w.Helper()
	cluster := &v1alpha1.TenantCluster{}
	w.must(w.host.Get(w.Context(), w.cluster, cluster))
	condition := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDRASynced)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason + ": " + condition.Message
}

func (w *fixture) awaitCondition(reason string) {
	w.Helper()
	w.eventually("the condition is "+reason, func(context.Context) error {
		if got := w.condition(); !strings.Contains(got, reason+":") {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// run runs the controllers until the end of the test or the call of what it returns. Without a process they do not die.
func (w *fixture) run(processes ...*process) (stop func()) {
	w.Helper()
	p := immortal()
	if len(processes) > 0 {
		p = processes[0]
	}
	if w.memory {
		return w.runInMemory(p)
	}
	m, host := w.manager(), w.hostCluster()
	w.must(m.Add(host))
	clusters := tenant.Clusters{TenantCluster: w.cluster,
		Tenant: p.watch(tenant.ClusterOf(m), "tenant"), Management: p.watch(tenant.ClusterOf(host), "host")}
	for _, c := range Controllers(clusters, clock.RealClock{}, w.events) {
		w.must(c.Register(w.Context(), m))
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- m.Start(ctx) }()
	done := false
	stop = func() {
		if done {
			return
		}
		done = true
		cancel()
		if err := <-stopped; err != nil {
			w.Errorf("running the manager, %v", err)
		}
	}
	w.Cleanup(stop)
	return stop
}

// manager returns a manager of the tenant, with the rights that the provider has there.
func (w *fixture) manager() manager.Manager {
	w.Helper()
	skip := true
	m, err := controllerruntime.NewManager(asUser(w.environment.Config), manager.Options{
		Scheme: w.environment.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	w.must(err)
	return m
}

// hostCluster returns the host, with the rights that the provider has there.
func (w *fixture) hostCluster() cluster.Cluster {
	w.Helper()
	host, err := cluster.New(asUser(hostEnvironment.Config), func(options *cluster.Options) {
		options.Scheme = hostEnvironment.Scheme
		options.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{w.cluster.Namespace: {}}}
	})
	w.must(err)
	return host
}

// wipe leaves nothing behind that the next test would find.
func (w *fixture) wipe() {
	ctx := context.Background()
	for _, c := range []client.Client{w.host, w.tenant} {
		for _, list := range []client.ObjectList{&resourcev1.ResourceClaimList{}, &resourcev1.ResourceClaimTemplateList{},
			&resourcev1.DeviceClassList{}, &corev1.PodList{}} {
			if err := c.List(ctx, list); err != nil {
				w.Fatal(err)
			}
			items, err := meta.ExtractList(list)
			if err != nil {
				w.Fatal(err)
			}
			for _, item := range items {
				object := item.(client.Object)
				if len(object.GetFinalizers()) > 0 {
					stored := object.DeepCopyObject().(client.Object)
					object.SetFinalizers(nil)
					if err := c.Patch(ctx, object, client.MergeFrom(stored)); client.IgnoreNotFound(err) != nil {
						w.Fatal(err)
					}
				}
				if err := c.Delete(ctx, object, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
					w.Fatal(err)
				}
			}
		}
	}
}

func (w *fixture) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) eventually(what string, check func(context.Context) error) {
	w.Helper()
	poll.Eventually(w, what, check)
}

// awaitGone waits until an object is not there.
func (w *fixture) awaitGone(c client.Client, object client.Object) {
	w.Helper()
	key := client.ObjectKeyFromObject(object)
	w.eventually(fmt.Sprintf("%T %s is gone", object, key), func(ctx context.Context) error {
		err := c.Get(ctx, key, object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there, finalizers %v, error %v", object.GetFinalizers(), err)
	})
}

// awaitEvent waits for an event of that reason on an object of that name, with all those words. The events on claims, templates
// and pods have vCluster's reason, and ours begins the message.
func (w *fixture) awaitEvent(reason, name string, words ...string) {
	w.Helper()
	w.eventually("there is an event "+reason+" on "+name, func(context.Context) error {
		var seen []string
		for _, e := range w.events.all() {
			text := e.Reason + " " + e.InvolvedObject.(client.Object).GetName() + " " + e.Message
			got := e.Reason
			if _, class := e.InvolvedObject.(*resourcev1.DeviceClass); !class {
				got, _, _ = strings.Cut(strings.TrimPrefix(text, "SyncWarning "+e.InvolvedObject.(client.Object).GetName()+" "), ": ")
			}
			matches := got == reason && e.InvolvedObject.(client.Object).GetName() == name
			for _, word := range words {
				matches = matches && strings.Contains(e.Message, word)
			}
			if matches {
				return nil
			}
			seen = append(seen, text)
		}
		return fmt.Errorf("there are:\n%s", strings.Join(seen, "\n"))
	})
}

// hostName is the name on the host of a claim or template.
func (w *fixture) hostName(name string) string {
	w.Helper()
	hostName, err := names.HostNameShort(name, w.namespace, w.cluster.Name)
	w.must(err)
	return hostName
}

// hostClaim returns the copy on the host, or nil.
func (w *fixture) hostClaim(name string) *resourcev1.ResourceClaim {
	w.Helper()
	claim := &resourcev1.ResourceClaim{}
	err := w.host.Get(w.Context(), client.ObjectKey{Namespace: w.cluster.Namespace, Name: w.hostName(name)}, claim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return claim
}

func (w *fixture) tenantClaim(name string) *resourcev1.ResourceClaim {
	w.Helper()
	claim := &resourcev1.ResourceClaim{}
	w.must(w.tenant.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, claim))
	return claim
}

func (w *fixture) awaitHostClaim(name string) *resourcev1.ResourceClaim {
	w.Helper()
	var claim *resourcev1.ResourceClaim
	w.eventually("claim "+name+" is on the host", func(context.Context) error {
		if claim = w.hostClaim(name); claim == nil {
			return fmt.Errorf("it is not; events: %v", w.events.all())
		}
		return nil
	})
	return claim
}
