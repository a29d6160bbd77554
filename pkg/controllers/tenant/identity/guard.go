// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity keeps a provider from acting on another cluster than its tenant's, or because of another cluster's
// answers. The identity of a cluster is the UID of its namespace kube-system. The provider reports it in the status of
// the TenantCluster, and the manager decides there whether it is the tenant's.
package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

const (
	// waitPeriod is how often the TenantCluster is read until the manager has decided.
	waitPeriod = 500 * time.Millisecond
	// period is how often the identity is compared without any writes.
	period = 10 * time.Second
	// timeout is how long one comparison may take, and may hold up writes.
	timeout = 5 * time.Second
	// fresh is how old the comparison before a write may be. A deletion always needs a new one: its reason was read
	// just before, maybe from another cluster.
	fresh = time.Second
	// refusedFor is how long a cluster must answer only 401 before its kubeconfig counts as refused. An API server may
	// refuse everything while it starts, or while its authenticator is away.
	refusedFor = 3 * time.Minute
)

// UID returns the identity of the cluster that a client reads from.
func UID(ctx context.Context, reader client.Reader) (string, error) {
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", fmt.Errorf("reading namespace %s, %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

// errAnotherCluster: the kubeconfig now leads to another cluster than before, whichever of them is the tenant's.
var errAnotherCluster = errors.New("the kubeconfig of the tenant cluster leads to another cluster than it did: nothing is written, and " +
	"the condition ClusterIdentified of the TenantCluster has more")

// Guard lets writes through while the cluster is the tenant's.
type Guard struct {
	tenant        client.Reader
	management    client.Client
	tenantCluster types.NamespacedName
	clock         clock.Clock

	// identified is closed once the manager has confirmed the cluster, and lost once another cluster answers.
	identified, lost chan struct{}
	losing           sync.Once
	// uid is the first cluster's UID: the caches hold its objects. It is written once, before identified is closed.
	uid string
	// comparing makes writes wait for a running comparison. tried is the start of the last comparison, and compared the
	// start of the last one with an answer.
	comparing       sync.Mutex
	tried, compared time.Time

	// ofTenant and ofManagement are the clusters' answers to the reads of Start.
	ofTenant, ofManagement answers
	// refusalReported: this process has written the condition since the tenant's cluster began to refuse it. Another
	// process with another kubeconfig may be accepted, and reset the condition: the two must not write it by turns.
	refusalReported bool
}

// NewGuard returns a guard of one tenant. Its own requests are not guarded.
func NewGuard(tenant, management *rest.Config, tenantCluster types.NamespacedName, scheme *runtime.Scheme,
	clk clock.Clock) (*Guard, error) {
	// These are all kinds that it reads. A lookup would ask both clusters for all their kinds, and keep the answers.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("TenantCluster"), meta.RESTScopeNamespace)
	tenantClient, err := client.New(tenant, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client for the tenant cluster at %s, %w", tenant.Host, err)
	}
	managementClient, err := client.New(management, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client for the management cluster at %s, %w", management.Host, err)
	}
	return &Guard{
		tenant: tenantClient, management: managementClient, tenantCluster: tenantCluster, clock: clk,
		identified: make(chan struct{}), lost: make(chan struct{}),
		ofTenant: answers{cluster: "tenant cluster"}, ofManagement: answers{cluster: "management cluster"},
	}, nil
}

// Begin notes which cluster answers, before anything is read into a cache. If none does, Start's first answer counts.
func (g *Guard) Begin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if uid, err := UID(ctx, g.tenant); err == nil {
		g.uid = uid
	}
}

// Start reports the cluster and compares it until the context ends. The error means that another cluster answers: the
// process must restart, because its knowledge is a mixture of both clusters.
func (g *Guard) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("identity"))
	reported := ""
	for {
		next := period
		if err := g.report(ctx); err != nil {
			if !g.isIdentified() {
				next = waitPeriod
			}
			if err.Error() != reported { // log it only once while nothing changes
				log.FromContext(ctx).Info("The cluster is not identified", "because", err.Error())
				reported = err.Error()
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

// Ready is a readiness probe that fails while a cluster refuses the credentials of its kubeconfig.
func (g *Guard) Ready(*http.Request) error {
	return errors.Join(g.ofTenant.refusal(), g.ofManagement.refusal())
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. The guard also guards writes of the lease.
func (g *Guard) NeedLeaderElection() bool { return false }

// report writes the identity of the cluster into the status of the TenantCluster, and reads the decision there.
func (g *Guard) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	observed, unknown := UID(ctx, g.tenant)
	g.ofTenant.add(unknown, g.clock.Now())
	if unknown == nil {
		g.uid = cmp.Or(g.uid, observed)
		g.compare(observed)
	}
	cluster := &v1alpha1.TenantCluster{}
	err := g.management.Get(ctx, g.tenantCluster, cluster)
	g.ofManagement.add(err, g.clock.Now())
	if err != nil {
		return cmp.Or(unknown, fmt.Errorf("reading TenantCluster %s, %w", g.tenantCluster, err))
	}
	before := cluster.DeepCopy()
	if unknown == nil {
		cluster.Status.ObservedClusterUID = observed
	}
	refused := g.setAccepted(cluster, unknown == nil)
	if !equality.Semantic.DeepEqual(before.Status, cluster.Status) {
		err = kube.PatchStatus(ctx, g.management, before, cluster)
		if err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	g.refusalReported = refused && (g.refusalReported || err == nil)
	if unknown != nil {
		return unknown
	}
	if g.isIdentified() {
		g.compare(cluster.Status.ClusterUID)
	}
	if cluster.Status.ClusterUID != observed {
		return fmt.Errorf("the manager has not confirmed that the cluster, whose namespace kube-system has the UID %s, is the tenant's: "+
			"the condition %s of TenantCluster %s has more", observed, v1alpha1.ConditionClusterIdentified, g.tenantCluster)
	}
	if !g.isIdentified() && !g.isLost() {
		close(g.identified)
	}
	return nil
}

// setAccepted sets the condition KubeconfigAccepted, and returns whether the tenant's cluster refuses the kubeconfig.
func (g *Guard) setAccepted(cluster *v1alpha1.TenantCluster, accepted bool) (refused bool) {
	refused = g.ofTenant.refusal() != nil
	condition := metav1.Condition{Type: v1alpha1.ConditionKubeconfigAccepted, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonKubeconfigAccepted, ObservedGeneration: cluster.Generation,
		LastTransitionTime: metav1.NewTime(g.clock.Now()), Message: "the tenant's API server accepts the kubeconfig of the provider"}
	was := conditions.Find(cluster.Status.Conditions, condition.Type)
	switch {
	case refused && !g.refusalReported:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonKubeconfigRefused
		condition.Message = fmt.Sprintf("the tenant's API server has answered the provider with nothing but 401 Unauthorized for %v: the token "+
			"or the certificate in its kubeconfig is not valid any more, and the provider does nothing. Renew the kubeconfig in its Secret, "+
			"which is this one unless the chart's value kubeconfig.secretName names another: %s", refusedFor, shell.Command(
			"kubectl create secret generic -n %s %s --from-file=kubeconfig=FILE --dry-run=client -o yaml | kubectl replace -f -",
			cluster.Namespace, cluster.Name+"-kubeconfig"))
	case accepted && was.Status == metav1.ConditionFalse: // also if an earlier process wrote it
	default:
		return refused
	}
	conditions.Set(&cluster.Status.Conditions, condition)
	return refused
}

// compare ends the process if the cluster is not the first one that answered.
func (g *Guard) compare(uid string) {
	if uid != g.uid {
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

// check returns an error unless the cluster is the tenant's. An outage stops only deletions: no other write depends so
// much on an answer that may be from another cluster.
func (g *Guard) check(ctx context.Context, deletes bool) error {
	arrived := g.clock.Now()
	// Before the cluster is identified, only the lease is requested, unless there is no leader election.
	select {
	case <-g.identified:
	case <-g.lost:
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
				_ = request.Body.Close() // a RoundTripper must close it, also when it fails
			}
			return nil, err
		}
	}
	return t.RoundTripper.RoundTrip(request)
}

// deletes reports whether a request deletes something, or evicts a pod.
func deletes(request *http.Request) bool {
	return request.Method == http.MethodDelete || strings.HasSuffix(request.URL.Path, "/eviction")
}

// WrappedRoundTripper implements net.RoundTripperWrapper: without it client-go finds no connections to close.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// answers are the answers of a cluster to the credentials.
type answers struct {
	cluster string

	mu sync.Mutex
	// first and last are the times of the first and the last 401 since the last good answer.
	first, last time.Time
}

// add adds an answer. Any error but 401 says nothing about the credentials, nor does a missing answer.
func (a *answers) add(err error, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.first, a.last = time.Time{}, time.Time{}
	case apierrors.IsUnauthorized(err) && a.first.IsZero():
		a.first, a.last = now, now
	case apierrors.IsUnauthorized(err):
		a.last = now
	}
}

// refusal returns an error if the cluster has refused the credentials for at least refusedFor.
func (a *answers) refusal() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last.Sub(a.first) < refusedFor {
		return nil
	}
	return fmt.Errorf("the %s has answered with nothing but 401 Unauthorized for %v: renew its kubeconfig", a.cluster, refusedFor)
}
