// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/identity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

// guarded is a provider's guard, a service that leads to the tenant's cluster, and clients of both clusters. They are one.
type guarded struct {
	t                  *testing.T
	key                types.NamespacedName
	service            *tenanttest.Service
	cluster            tenanttest.Backend
	tenant, management client.Client
	pods               kubernetes.Interface
	ended              chan error
	// asked leads to the management cluster, and ready is the readiness probe.
	asked *tenanttest.Service
	ready func() error
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	return newGuardedAt(t, clock.RealClock{})
}

func newGuardedAt(t *testing.T, clk clock.Clock) *guarded {
	t.Helper()
	g := &guarded{t: t, key: tenanttest.TenantCluster(t, &environment), cluster: tenanttest.APIServer(t, environment.Config),
		ended: make(chan error, 1)}
	g.service = tenanttest.NewService(g.cluster)
	g.asked = tenanttest.NewService(g.cluster)
	guard, err := identity.NewGuard(g.service.Config(), g.asked.Config(), g.key, environment.Scheme, clk)
	if err != nil {
		t.Fatal(err)
	}
	g.ready = func() error { return guard.Ready(nil) }
	if g.tenant, err = client.New(guard.Guarded(g.service.Config()), client.Options{Scheme: environment.Scheme}); err != nil {
		t.Fatal(err)
	}
	if g.management, err = client.New(guard.Guarded(environment.Config), client.Options{Scheme: environment.Scheme}); err != nil {
		t.Fatal(err)
	}
	if g.pods, err = kubernetes.NewForConfig(guard.Guarded(g.service.Config())); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		g.ended <- guard.Start(ctx)
		close(stopped)
	}()
	t.Cleanup(func() {
		stop()
		<-stopped
	})
	return g
}

// identifiedAs plays the manager, after the guard has reported the cluster.
func (g *guarded) identifiedAs(uid func(reported string) string) {
	g.t.Helper()
	tenanttest.Eventually(g.t, "the cluster is reported", func(ctx context.Context) (bool, error) {
		cluster := &v1alpha1.TenantCluster{}
		if err := environment.Client.Get(ctx, g.key, cluster); err != nil || cluster.Status.ObservedClusterUID == "" {
			return false, err
		}
		cluster.Status.ClusterUID = uid(cluster.Status.ObservedClusterUID)
		return true, environment.Client.Status().Update(ctx, cluster)
	})
}

// identified returns once the provider may write.
func (g *guarded) identified() {
	g.t.Helper()
	g.identifiedAs(same)
	if err := g.management.Delete(g.t.Context(), g.object("first")); err != nil {
		g.t.Fatal(err)
	}
}

func same(reported string) string { return reported }

// object makes a ConfigMap in one of the clusters, past the guard.
func (g *guarded) object(name string) *corev1.ConfigMap {
	g.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: name}}
	if err := environment.Client.Create(g.t.Context(), object); err != nil {
		g.t.Fatal(err)
	}
	return object
}

// anotherCluster is a backend that is the tenant's cluster, except for its identity.
func (g *guarded) anotherCluster() tenanttest.Backend {
	other := g.object("other")
	return func(request *http.Request) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/namespaces/kube-system") {
			request = request.Clone(request.Context())
			request.URL.Path = "/api/v1/namespaces/" + other.Namespace // its UID is another
		}
		return g.cluster(request)
	}
}

// briefly is how long a write that waits is waited for.
func briefly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// TestRequests: a guard looks up no kinds. A hundred providers that start together would ask for all of them, and each would keep them.
func TestRequests(t *testing.T) {
	key, cluster := tenanttest.TenantCluster(t, &environment), tenanttest.APIServer(t, environment.Config)
	var asked sync.Map
	service := tenanttest.NewService(func(request *http.Request) (*http.Response, error) {
		asked.Store(request.URL.Path, true)
		return cluster(request)
	})
	guard, err := identity.NewGuard(service.Config(), service.Config(), key, environment.Scheme, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- guard.Start(ctx) }()
	(&guarded{t: t, key: key}).identifiedAs(same)
	stop()
	if err := poll.Receive(t, "the end of the guard", ended); err != nil {
		t.Fatal(err)
	}
	tenantCluster := "/apis/karpenter.metal3.io/v1alpha1/namespaces/" + key.Namespace + "/tenantclusters/" + key.Name
	want := map[any]any{"/api/v1/namespaces/kube-system": true, tenantCluster: true, tenantCluster + "/status": true}
	got := map[any]any{}
	asked.Range(func(path, _ any) bool { got[path] = true; return true })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths of requests (-want +got):\n%s", diff)
	}
}

// TestUnidentified: before the manager has said that the cluster is the tenant's nothing is written, in neither cluster.
func TestUnidentified(t *testing.T) {
	g := newGuarded(t)
	g.identifiedAs(func(string) string { return env.UID("another") })
	for name, c := range map[string]client.Client{"tenant": g.tenant, "management": g.management} {
		object := g.object(name)
		if err := c.Delete(briefly(t), object); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deletion in the %s cluster: %v", name, err)
		}
		created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: "new"}}
		if err := c.Create(briefly(t), created); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write in the %s cluster: %v", name, err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Errorf("a read: %v", err)
		}
	}
	g.identifiedAs(same) // the new identity was accepted
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.key.Namespace, Name: "tenant"}}
	if err := g.tenant.Delete(t.Context(), object); err != nil {
		t.Errorf("after the cluster was accepted: %v", err)
	}
}

// TestAnotherCluster: the service behind the kubeconfig is switched while the provider runs.
func TestAnotherCluster(t *testing.T) {
	for name, write := range map[string]func(g *guarded, object *corev1.ConfigMap) error{
		"DeletionInManagement": func(g *guarded, object *corev1.ConfigMap) error { return g.management.Delete(t.Context(), object) },
		"DeletionInTenant":     func(g *guarded, object *corev1.ConfigMap) error { return g.tenant.Delete(t.Context(), object) },
		"Eviction": func(g *guarded, object *corev1.ConfigMap) error {
			return g.pods.PolicyV1().RESTClient().Post().AbsPath("/api/v1/namespaces/x/pods/y/eviction").Do(t.Context()).Error()
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t)
			g.identified()
			object := g.object("second")
			g.service.LeadsTo(g.anotherCluster())
			if err := write(g, object); err == nil || !strings.Contains(err.Error(), "leads to another cluster than it did") {
				t.Fatalf("it is done: %v", err)
			}
			if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Errorf("the object: %v", err)
			}
			if err := poll.Receive(t, "the end of the process", g.ended); err == nil {
				t.Error("the process works on, with what it knows of two clusters")
			}
			// The next write is another one of the same process, which ends.
			g.service.LeadsTo(g.cluster)
			if err := g.management.Delete(t.Context(), object); err == nil {
				t.Error("the process deletes something after it has seen two clusters")
			}
		})
	}
}

// TestAnotherClusterFirst: the caches may hold what was read from the first cluster, also if the second one is the tenant's.
func TestAnotherClusterFirst(t *testing.T) {
	g := newGuarded(t)
	namespace := &corev1.Namespace{}
	if err := environment.Client.Get(t.Context(), types.NamespacedName{Name: g.key.Namespace}, namespace); err != nil {
		t.Fatal(err)
	}
	g.identifiedAs(func(string) string { return string(namespace.UID) })
	object, tenants := g.object("there"), g.anotherCluster()
	waiting := make(chan error, 1)
	go func() { waiting <- g.management.Delete(context.Background(), object) }()
	g.service.LeadsTo(tenants)
	if err := poll.Receive(t, "the end of the write that waits", waiting); err == nil {
		t.Error("the process deletes something after it has seen two clusters")
	}
	if err := poll.Receive(t, "the end of the process", g.ended); err == nil {
		t.Error("the process works on, with what it knows of two clusters")
	}
}

// TestAnotherClusterAtStart: what the caches read before the guard starts counts, too.
func TestAnotherClusterAtStart(t *testing.T) {
	g := newGuarded(t)
	service := tenanttest.NewService(g.anotherCluster())
	guard, err := identity.NewGuard(service.Config(), environment.Config, g.key, environment.Scheme, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	guard.Begin(t.Context())
	service.LeadsTo(g.cluster)
	ended := make(chan error, 1)
	go func() { ended <- guard.Start(t.Context()) }()
	if err := poll.Receive(t, "the end of the process", ended); err == nil {
		t.Error("the process works with what it has read from another cluster")
	}
}

// TestNotKnownWhichCluster: an outage proves nothing. Deletions wait for its end, and other writes go on.
func TestNotKnownWhichCluster(t *testing.T) {
	for name, backend := range map[string]tenanttest.Backend{
		"Outage":       noAnswer,
		"Unauthorized": unauthorized,
		"Forbidden":    forbidden,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t)
			g.identified()
			object := g.object("there")
			g.service.LeadsTo(backend)
			if err := g.management.Delete(t.Context(), object); err == nil || !strings.Contains(err.Error(), "cannot be identified") {
				t.Errorf("a deletion: %v", err)
			}
			object.Data = map[string]string{"a": "b"}
			if err := g.management.Update(t.Context(), object); err != nil {
				t.Errorf("another write: %v", err)
			}
			g.service.LeadsTo(g.cluster)
			if err := g.management.Delete(t.Context(), object); err != nil {
				t.Errorf("a deletion after the outage: %v", err)
			}
		})
	}
}

// refused is a guarded provider whose clock the test moves.
type refused struct {
	*guarded
	clock *clocktesting.FakeClock
}

func newRefused(t *testing.T) *refused {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	r := &refused{newGuardedAt(t, clk), clk}
	r.passes(0)
	r.identifiedAs(same)
	r.passes(10 * time.Second)
	return r
}

// passes lets time go by, in steps as long as the provider waits between two reads.
func (r *refused) passes(duration time.Duration) {
	r.t.Helper()
	for step := 10 * time.Second; ; duration -= step {
		tenanttest.Eventually(r.t, "the provider waits", func(context.Context) (bool, error) { return r.clock.HasWaiters(), nil })
		if duration <= 0 {
			return
		}
		r.clock.Step(step)
	}
}

func (r *refused) tenantCluster() *v1alpha1.TenantCluster {
	r.t.Helper()
	cluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(r.t.Context(), r.key, cluster); err != nil {
		r.t.Fatal(err)
	}
	return cluster
}

func (r *refused) condition() metav1.Condition {
	r.t.Helper()
	return conditions.Find(r.tenantCluster().Status.Conditions, v1alpha1.ConditionKubeconfigAccepted)
}

var (
	unauthorized = tenanttest.Answer(apierrors.NewUnauthorized("expired").Status())
	forbidden    = tenanttest.Answer(metav1.Status{Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
)

func noAnswer(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") }

// TestRefusedByTenant: a tenant's API server that answers nothing but 401 for minutes is a condition, and the provider is not ready.
func TestRefusedByTenant(t *testing.T) {
	r := newRefused(t)
	r.service.LeadsTo(unauthorized)
	r.passes(2 * time.Minute)
	if err := r.ready(); err != nil || r.condition().Type != "" {
		t.Errorf("an API server may refuse everything while it starts: %v, condition %+v", err, r.condition())
	}
	r.passes(2 * time.Minute)
	if err := r.ready(); err == nil || !strings.Contains(err.Error(), "tenant cluster") {
		t.Errorf("the readiness probe says %v", err)
	}
	condition := r.condition()
	if condition.Status != metav1.ConditionFalse || condition.Reason != v1alpha1.ReasonKubeconfigRefused ||
		!strings.Contains(condition.Message, "kubectl create secret generic -n "+r.key.Namespace+" "+r.key.Name+"-kubeconfig ") {
		t.Errorf("the condition is %+v", condition)
	}
	if blocked := r.tenantCluster().Blocked(); len(blocked) != 1 {
		t.Errorf("events and metrics show %v", blocked)
	}
	// An outage does not mend it.
	r.service.LeadsTo(noAnswer)
	r.passes(time.Minute)
	if err := r.ready(); err == nil || r.condition() != condition {
		t.Errorf("during an outage: %v, condition %+v", err, r.condition())
	}
	r.service.LeadsTo(r.cluster)
	r.passes(10 * time.Second)
	if err := r.ready(); err != nil || r.condition().Status != metav1.ConditionTrue || len(r.tenantCluster().Blocked()) > 0 {
		t.Errorf("after the first good answer: %v, condition %+v", err, r.condition())
	}
}

// TestRefusedByManagement: the condition cannot be written, but the provider is not ready.
func TestRefusedByManagement(t *testing.T) {
	r := newRefused(t)
	r.asked.LeadsTo(unauthorized)
	r.passes(4 * time.Minute)
	if err := r.ready(); err == nil || !strings.Contains(err.Error(), "management cluster") {
		t.Errorf("the readiness probe says %v", err)
	}
	r.asked.LeadsTo(r.cluster)
	r.passes(10 * time.Second)
	if err := r.ready(); err != nil {
		t.Errorf("after the first good answer: %v", err)
	}
}

// TestNotRefused: what does not say that the credentials are refused is none of this.
func TestNotRefused(t *testing.T) {
	for name, backends := range map[string][]tenanttest.Backend{
		"Outage":        {noAnswer},
		"Forbidden":     {forbidden},
		"OneGood":       {unauthorized, nil, unauthorized}, // nil is the tenant's cluster
		"OneThenNoMore": {unauthorized, noAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRefused(t)
			for _, backend := range backends {
				if backend == nil {
					backend = r.cluster
				}
				r.service.LeadsTo(backend)
				r.passes(2 * time.Minute)
			}
			if err := r.ready(); err != nil || r.condition().Type != "" {
				t.Errorf("%v, condition %+v", err, r.condition())
			}
		})
	}
}

// TestAcceptedAgain: the process that is started with the new kubeconfig takes the condition of the one before it back.
func TestAcceptedAgain(t *testing.T) {
	r := newRefused(t)
	cluster := r.tenantCluster()
	conditions.Set(&cluster.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionKubeconfigAccepted, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonKubeconfigRefused})
	if err := environment.Client.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	r.passes(10 * time.Second)
	if condition := r.condition(); condition.Status != metav1.ConditionTrue {
		t.Errorf("the condition is %+v", condition)
	}
}

// TestRefusedBesideAnother: one of two processes is refused. They do not overwrite the condition by turns.
func TestRefusedBesideAnother(t *testing.T) {
	r := newRefused(t)
	r.service.LeadsTo(unauthorized)
	r.passes(4 * time.Minute)
	cluster := r.tenantCluster()
	if condition := r.condition(); condition.Status != metav1.ConditionFalse {
		t.Fatalf("the condition is %+v", condition)
	}
	conditions.Set(&cluster.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionKubeconfigAccepted, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonKubeconfigAccepted})
	if err := environment.Client.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	r.passes(4 * time.Minute)
	if condition := r.condition(); condition.Status != metav1.ConditionTrue {
		t.Errorf("the condition is %+v", condition)
	}
	if r.ready() == nil {
		t.Error("the process that is refused is ready")
	}
}
