// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/garbagecollection"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// maxRounds is far more than any step takes. Reaching it means that nothing moves any more.
const maxRounds = 30

var (
	connecting sync.Once
	connection client.WithWatch
)

// directly is one connection for all lives: discovery takes longer than a whole life.
func directly(t *testing.T) client.WithWatch {
	t.Helper()
	connecting.Do(func() { connection = tenanttest.WithWatch(&environment) })
	if connection == nil {
		t.Fatal("there is no connection")
	}
	return connection
}

// life is that of one Machine, from the issue of its token to its end. Nothing runs by itself: in a round every controller
// looks at everything once.
type life struct {
	*fixture
	uid types.UID
	// connection and stale are those of the provider that is running.
	connection *faults.Connection
	stale      *faults.StaleReads
	joins      *reconcilers
	// issued is the token that the server may be booting with.
	issued bootstrap.Token
}

// reconcilers are a provider's controllers that have to do with joining.
type reconcilers struct {
	joining   reconcile.Reconciler
	leftovers *garbagecollection.LeftoverController
}

func newLife(t *testing.T, connection *faults.Connection, stale *faults.StaleReads) *life {
	w := newFixture(t)
	w.setType()
	l := &life{fixture: w, uid: w.get().UID, connection: connection, stale: stale}
	l.start()
	return l
}

// start starts the provider.
func (l *life) start() {
	l.Helper()
	live := l.connection.Client(directly(l.T))
	clusters := tenanttest.ClustersOf(l.cluster, live, live)
	clusters.Tenant.Client, clusters.Management.Client = l.timed(l.stale.Client(live)), l.stale.Client(live)
	l.joins = &reconcilers{
		joining: reconcile.AsReconciler[*v1alpha1.Machine](clusters.Management.Client,
			NewController(l.clock, clusters, ClusterCA(live, environment.Config), l.follows(environment.Config))),
		leftovers: garbagecollection.NewLeftoverController(clusters),
	}
}

// round lets the provider look at everything, and one that has died be followed by another. Errors are what a work
// queue would try again.
func (l *life) round() {
	l.Helper()
	if l.connection.Dead() {
		l.connection, l.stale = &faults.Connection{}, &faults.StaleReads{}
		l.start()
	}
	_, _ = l.joins.joining.Reconcile(l.Context(), reconcile.Request{NamespacedName: l.machine})
	_, _ = l.joins.leftovers.Reconcile(l.Context())
	l.connection.PassTime()
	l.checkRules()
}

// checkRules checks what must hold at any moment.
func (l *life) checkRules() {
	l.Helper()
	if tokens := l.tokensLeft(); len(tokens) > 1 {
		l.Fatalf("there are %d tokens for one Machine", len(tokens))
	}
	machine := l.current()
	if machine == nil || machine.Spec.Bootstrap.DataSecretName == "" || machine.ReportedNode().Name != "" ||
		!machine.DeletionTimestamp.IsZero() {
		return
	}
	for _, secret := range l.secrets() {
		join, err := emulator.ReadJoin(secret.Data[v1alpha1.UserDataSecretKey])
		if err != nil {
			l.Fatalf("a server that boots now would not join: %v", err)
		}
		if !l.issued.IsZero() && join.Token != l.issued {
			l.Fatalf("the server may be booting with token %s, and the user data has %s now", l.issued, join.Token)
		}
		l.issued = join.Token
		if reported := machine.ReportedNode().KubernetesVersion; reported != join.KubernetesVersion {
			l.Fatalf("the server installs %q, and the Machine is said to be installed with %q", join.KubernetesVersion, reported)
		}
	}
}

// until makes rounds until the fixture is as it should be.
func (l *life) until(what string, reached func() bool) {
	l.Helper()
	for range maxRounds {
		l.round()
		if reached() {
			return
		}
	}
	l.Fatalf("after %d rounds still not %s: Machine %+v, %d tokens, %d secrets", maxRounds, what, l.current(), len(l.tokensLeft()),
		len(l.secrets()))
}

// current returns the Machine, nil if it is gone.
func (l *life) current() *v1alpha1.Machine {
	l.Helper()
	machine := &v1alpha1.Machine{}
	err := environment.Client.Get(context.Background(), l.machine, machine)
	if client.IgnoreNotFound(err) != nil {
		l.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return machine
}

// tokensLeft returns the Machine's join tokens, also when it is gone.
func (l *life) tokensLeft() []corev1.Secret {
	l.Helper()
	list := &corev1.SecretList{}
	if err := environment.Client.List(context.Background(), list, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{v1alpha1.MachineUIDLabelKey: string(l.uid)}); err != nil {
		l.Fatal(err)
	}
	return list.Items
}

// canJoin returns whether the server can join: the token is valid for an hour, and its user data has it.
func (l *life) canJoin() bool {
	machine, tokens, secrets := l.current(), l.tokensLeft(), l.secrets()
	if machine == nil || len(tokens) != 1 || len(secrets) != 1 || machine.Spec.Bootstrap.DataSecretName != secrets[0].Name {
		return false
	}
	join, err := emulator.ReadJoin(secrets[0].Data[v1alpha1.UserDataSecretKey])
	return err == nil && string(tokens[0].Data["token-secret"]) == join.Token.SecretHalf() &&
		expiryOf(l.T, tokens[0]).Sub(l.clock.Now()) >= tokenValidity
}

// joined returns whether the manager has been told, and no token is left anywhere.
func (l *life) joined() bool {
	machine, secrets := l.current(), l.secrets()
	return machine != nil && machine.ReportedNode().Name != "" && len(l.tokensLeft()) == 0 && len(secrets) == 1 && allEmpty(secrets)
}

// nothingLeft returns whether nobody can join. Kubernetes deletes the Secrets with their Machine.
func (l *life) nothingLeft() bool {
	machine := l.current()
	return len(l.tokensLeft()) == 0 && (machine == nil || allEmpty(l.secrets()))
}

// deleted returns whether the Machine is being deleted: then only its end is left to happen.
func (l *life) deleted() bool {
	machine := l.current()
	return machine == nil || !machine.DeletionTimestamp.IsZero()
}

// delete deletes the Machine. Its finalizer stays, as long as the manager takes to release the server.
func (l *life) delete() {
	if err := client.IgnoreNotFound(environment.Client.Delete(context.Background(),
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: l.machine.Namespace, Name: l.machine.Name}})); err != nil {
		l.Error(err)
	}
}

// release is the manager taking its finalizer away.
func (l *life) release() {
	machine := l.current()
	if machine == nil {
		return
	}
	if err := environment.Client.Patch(context.Background(), machine,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
		l.Error(err)
	}
}

// live takes the Machine through its life: its token is issued, renewed, restored after it has expired, and revoked when the
// server has joined, and everything taken back when the Machine goes.
func (l *life) live() {
	l.Helper()
	steps := []struct {
		what    string
		before  func()
		reached func() bool
	}{
		{"able to join", func() {}, l.canJoin},
		{"renewed", func() { l.pass(tokenRenewal) }, l.canJoin},
		{"restored", l.expire, l.canJoin},
		{"joined", func() {
			if machine := l.current(); machine != nil {
				l.register(machine.Name, machine.Status.ProviderID)
			}
		}, l.joined},
	}
	for _, step := range steps {
		if l.deleted() {
			break
		}
		step.before()
		l.until(step.what, func() bool { return step.reached() || l.deleted() })
	}
	l.delete()
	l.until("without anything to join with, while its server is being released", l.nothingLeft)
	l.release()
	l.round()
	if l.current() != nil || !l.nothingLeft() {
		l.Errorf("left are Machine %v, %d tokens, %d secrets", l.current(), len(l.tokensLeft()), len(l.secrets()))
	}
}

func (l *life) pass(time time.Duration) { l.clock.SetTime(l.clock.Now().Add(time)) }

// expire is the tenant deleting a token that has expired, while the provider was not there.
func (l *life) expire() {
	for _, token := range l.tokensLeft() {
		if err := environment.Client.Delete(l.Context(), &token); err != nil {
			l.Fatal(err)
		}
	}
	l.pass(24 * time.Hour)
}

// try tries one kind of mishap at every point there is.
func try(t *testing.T, name string, first, last int, point func(t *testing.T, number int)) {
	t.Helper()
	var tried, failed atomic.Int32
	t.Run(name, func(t *testing.T) {
		for number := first; number <= last; number++ {
			t.Run(fmt.Sprintf("Point%02d", number), func(t *testing.T) {
				t.Parallel()
				tried.Add(1)
				t.Cleanup(func() {
					if t.Failed() {
						failed.Add(1)
					}
				})
				point(t, number)
			})
		}
	})
	t.Logf("join tokens, %s: %d points tried, %d failures", name, tried.Load(), failed.Load())
}

// TestTokensWhateverGoesWrong has something go wrong at every write, and at every read from a cache, of the whole life
// of a Machine's join token.
func TestTokensWhateverGoesWrong(t *testing.T) {
	undisturbed := newLife(t, &faults.Connection{}, &faults.StaleReads{})
	connection, stale := undisturbed.connection, undisturbed.stale
	undisturbed.live()
	writes, reads := connection.Writes(), stale.Reads()
	for n, name := range writes {
		t.Logf("write %2d: %s", n+1, name)
	}
	if len(writes) < 9 || reads < 15 {
		t.Fatalf("a life has %d writes and %d reads: the test does not see them all", len(writes), reads)
	}
	for _, kind := range faults.AtWrites {
		first := 1
		if kind == faults.Crash {
			first = 0 // before any write
		}
		try(t, string(kind), first, len(writes), func(t *testing.T, write int) {
			newLife(t, &faults.Connection{Kind: kind, At: write}, &faults.StaleReads{}).live()
		})
	}
	try(t, "Stale", 1, reads, func(t *testing.T, read int) {
		newLife(t, &faults.Connection{}, &faults.StaleReads{At: read}).live()
	})
	// The Machine is deleted just before a write: its server is still being released, or it is gone at once, and maybe
	// the provider dies right after the write.
	for name, tc := range map[string]struct{ gone, dies bool }{
		"Deleted": {}, "DeletedAndCrashed": {dies: true}, "Gone": {gone: true}, "GoneAndCrashed": {gone: true, dies: true},
	} {
		try(t, name, 1, len(writes), func(t *testing.T, write int) {
			connection := &faults.Connection{Kind: faults.Overtaken, At: write, ThenDies: tc.dies}
			l := newLife(t, connection, &faults.StaleReads{})
			connection.Meanwhile = func() {
				l.delete()
				if tc.gone {
					l.release()
				}
			}
			l.live()
			if len(connection.Writes()) < write {
				t.Errorf("the provider has not come to write %d", write)
			}
		})
	}
}
