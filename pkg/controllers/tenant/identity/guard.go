// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity keeps a provider from acting on another cluster than its tenant's, and on what another cluster says. The
// identity of a cluster is the UID of its namespace kube-system. The provider reports it in the status of the TenantCluster, and
// the manager decides there whether it is the tenant's.
package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers"
)

const (
	// waitPeriod is how often the TenantCluster is read until the manager has decided.
	waitPeriod = 500 * time.Millisecond
	// period is how often the identity is compared when nothing is written.
	period = 10 * time.Second
	// timeout is how long one comparison may take, and may hold up writes.
	timeout = 5 * time.Second
	// fresh is how old the comparison before a write may be. None is old enough for a deletion: what made it look right was read
	// just before, maybe from another cluster.
	fresh = time.Second
)

// UID returns the identity of the cluster that a client reads from.
func UID(ctx context.Context, reader client.Reader) (string, error) {
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", fmt.Errorf("reading namespace %s, %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

// errAnotherCluster: the kubeconfig leads to another cluster than it did.
var errAnotherCluster = errors.New("the kubeconfig of the tenant cluster does not lead to the tenant's cluster any more: nothing is " +
	"written, and the condition ClusterIdentified of the TenantCluster has more")

// Guard lets writes through while the cluster is the tenant's.
type Guard struct {
	tenant        client.Reader
	management    client.Client
	tenantCluster types.NamespacedName
	clock         clock.Clock

	// identified is closed once the manager has said that the cluster is the tenant's, and lost once it is another one.
	identified, lost chan struct{}
	losing           sync.Once
	// uid is that of the tenant's cluster. It is written once, before identified is closed.
	uid string
	// comparing makes writes wait for a comparison that runs. The last one began when tried says, and the last that had an answer
	// when compared says.
	comparing       sync.Mutex
	tried, compared time.Time
}

// NewGuard returns a guard of one tenant. Its own requests are not guarded.
func NewGuard(tenant, management *rest.Config, tenantCluster types.NamespacedName, scheme *runtime.Scheme,
	clk clock.Clock) (*Guard, error) {
	tenantClient, err := client.New(tenant, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client for the tenant cluster at %s, %w", tenant.Host, err)
	}
	managementClient, err := client.New(management, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client for the management cluster at %s, %w", management.Host, err)
	}
	return &Guard{
		tenant: tenantClient, management: managementClient, tenantCluster: tenantCluster, clock: clk,
		identified: make(chan struct{}), lost: make(chan struct{}),
	}, nil
}

// Start reports the cluster and compares it until the context ends. The error says that it is another cluster than it was: what
// the process knows is then a mixture of both, so that it has to start again.
func (g *Guard) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("identity"))
	said := ""
	for {
		next := period
		if err := g.report(ctx); err != nil {
			if !g.isIdentified() {
				next = waitPeriod
			}
			if err.Error() != said { // it is the same for as long as nothing changes
				log.FromContext(ctx).Info("The cluster is not identified", "because", err.Error())
				said = err.Error()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.lost:
			return errAnotherCluster
		case <-g.clock.After(next):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. The lease is written under guard too.
func (g *Guard) NeedLeaderElection() bool { return false }

// report writes the identity of the cluster into the status of the TenantCluster, and reads there whether it is the tenant's.
func (g *Guard) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	observed, err := UID(ctx, g.tenant)
	if err != nil {
		return err
	}
	g.compare(observed)
	cluster := &v1alpha1.TenantCluster{}
	if err := g.management.Get(ctx, g.tenantCluster, cluster); err != nil {
		return fmt.Errorf("reading TenantCluster %s, %w", g.tenantCluster, err)
	}
	if cluster.Status.ObservedClusterUID != observed {
		before := cluster.DeepCopy()
		cluster.Status.ObservedClusterUID = observed
		if err := controllers.PatchStatus(ctx, g.management, before, cluster); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	g.compare(cluster.Status.ClusterUID)
	if cluster.Status.ClusterUID != observed {
		return fmt.Errorf("the manager has not confirmed that the cluster, whose namespace kube-system has the UID %s, is the tenant's: "+
			"the condition %s of TenantCluster %s has more", observed, v1alpha1.ConditionClusterIdentified, g.tenantCluster)
	}
	if !g.isIdentified() {
		g.uid = observed
		close(g.identified)
	}
	return nil
}

// compare ends the process if a cluster is not the one that was identified.
func (g *Guard) compare(uid string) {
	if g.isIdentified() && uid != g.uid {
		g.losing.Do(func() { close(g.lost) })
	}
}

func (g *Guard) isIdentified() bool { return closed(g.identified) }

func (g *Guard) isLost() bool { return closed(g.lost) }

func closed(channel chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// check returns an error unless the cluster is the tenant's. An outage stops deletions only: other writes change nothing that
// the answer of another cluster could have made look right.
func (g *Guard) check(ctx context.Context, deletes bool) error {
	arrived := g.clock.Now()
	// Before the cluster is identified only the lease is asked for, unless there is no leader election.
	select {
	case <-g.identified:
	case <-ctx.Done():
		return fmt.Errorf("waiting until the cluster is identified, %w", ctx.Err())
	}
	g.comparing.Lock()
	defer g.comparing.Unlock()
	if g.isLost() {
		return errAnotherCluster
	}
	if deletes && !g.compared.Before(arrived) || !deletes && !g.tried.Before(arrived.Add(-fresh)) {
		return nil
	}
	g.tried = g.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	observed, err := UID(ctx, g.tenant)
	switch {
	case err != nil && deletes:
		return fmt.Errorf("the cluster cannot be identified before a deletion, %w", err)
	case err != nil:
		return nil
	}
	if g.compare(observed); g.isLost() {
		return errAnotherCluster
	}
	g.compared = g.tried
	return nil
}

// Guarded returns a copy of the configuration whose clients write only while the cluster is the tenant's.
func (g *Guard) Guarded(config *rest.Config) *rest.Config {
	guarded := rest.CopyConfig(config)
	guarded.Wrap(func(base http.RoundTripper) http.RoundTripper { return &transport{base, g} })
	return guarded
}

type transport struct {
	http.RoundTripper
	guard *Guard
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		if err := t.guard.check(request.Context(), deletes(request)); err != nil {
			if request.Body != nil {
				_ = request.Body.Close() // a RoundTripper has to, also when it fails
			}
			return nil, err
		}
	}
	return t.RoundTripper.RoundTrip(request)
}

// deletes returns whether a request deletes something, or evicts a pod.
func deletes(request *http.Request) bool {
	return request.Method == http.MethodDelete || strings.HasSuffix(request.URL.Path, "/eviction")
}

// WrappedRoundTripper implements net.RoundTripperWrapper: without it client-go finds no connections to close.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
