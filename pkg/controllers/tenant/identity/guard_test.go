// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/identity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
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
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{t: t, key: tenanttest.TenantCluster(t, &environment), cluster: tenanttest.APIServer(t, environment.Config),
		ended: make(chan error, 1)}
	g.service = tenanttest.NewService(g.cluster)
	guard, err := identity.NewGuard(g.service.Config(), environment.Config, g.key, environment.Scheme, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
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

// TestUnidentified: before the manager has said that the cluster is the tenant's nothing is written, in neither cluster.
func TestUnidentified(t *testing.T) {
	g := newGuarded(t)
	g.identifiedAs(func(string) string { return "another" })
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
			if err := write(g, object); err == nil || !strings.Contains(err.Error(), "does not lead to the tenant's cluster any more") {
				t.Fatalf("it is done: %v", err)
			}
			if err := environment.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Errorf("the object: %v", err)
			}
			select {
			case err := <-g.ended:
				if err == nil {
					t.Error("the process works on, with what it knows of two clusters")
				}
			case <-time.After(time.Minute):
				t.Error("the process does not end")
			}
			// The next write is another one of the same process, which ends.
			g.service.LeadsTo(g.cluster)
			if err := g.management.Delete(t.Context(), object); err == nil {
				t.Error("the process deletes something after it has seen two clusters")
			}
		})
	}
}

// TestNotKnownWhichCluster: an outage proves nothing. Deletions wait for its end, and other writes go on.
func TestNotKnownWhichCluster(t *testing.T) {
	for name, backend := range map[string]tenanttest.Backend{
		"Outage":       func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") },
		"Unauthorized": tenanttest.Answer(apierrors.NewUnauthorized("expired").Status()),
		"Forbidden":    tenanttest.Answer(metav1.Status{Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden}),
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
