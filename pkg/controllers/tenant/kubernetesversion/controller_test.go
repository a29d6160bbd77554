// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package kubernetesversion_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/tenant/kubernetesversion"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

// fixture is a tenant whose version the test says. It counts writes, and can refuse them.
type fixture struct {
	*testing.T
	key     types.NamespacedName
	service *tenanttest.Service
	clock   *testclock.FakePassiveClock
	*kubernetesversion.Controller
	writes int
	refuse error
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, key: tenanttest.TenantCluster(t, &environment), service: tenanttest.NewService(nil),
		clock: testclock.NewFakePassiveClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))}
	f.restart()
	return f
}

func (f *fixture) restart() {
	f.Helper()
	management := interceptor.NewClient(environment.Client, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, resource string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			if f.writes++; f.refuse != nil {
				return f.refuse
			}
			return c.SubResource(resource).Patch(ctx, object, patch, options...)
		},
	})
	controller, err := kubernetesversion.NewController(f.clock, tenanttest.ClustersOf(f.key, environment.Client, management),
		f.service.Config())
	if err != nil {
		f.Fatal(err)
	}
	f.Controller = controller
}

// stored is the version in the status of the TenantCluster.
func (f *fixture) stored() string {
	f.Helper()
	cluster := &v1alpha1.TenantCluster{}
	if err := environment.Client.Get(f.Context(), f.key, cluster); err != nil {
		f.Fatal(err)
	}
	return cluster.Status.KubernetesVersion
}

func (f *fixture) pass(duration time.Duration) { f.clock.SetTime(f.clock.Now().Add(duration)) }

// step is what happens, and what follows.
type step struct {
	// pass is how far the clock goes each time, after which minor is the answer; times is how often, one by default.
	pass  time.Duration
	times int
	minor string
	// restarts says that the provider starts again before.
	restarts bool
	// want is the version that servers follow after each time, empty if it is not known.
	want string
}

// TestLeast: the servers follow the least version that was seen within ten minutes.
func TestLeast(t *testing.T) {
	const period = 30 * time.Second
	for name, tc := range map[string]struct {
		reason string
		steps  []step
		writes int
	}{
		"First": {reason: "there is no other", writes: 1, steps: []step{{minor: "36", want: "v1.36"}}},
		"Steady": {reason: "nothing is written while nothing changes", writes: 1, steps: []step{
			{pass: period, times: 100, minor: "36", want: "v1.36"}}},
		"Vendor": {reason: "distributions add to the version", writes: 1, steps: []step{{minor: "36+", want: "v1.36"}}},
		"Numbers": {reason: "they are no words", writes: 2, steps: []step{
			{minor: "10", want: "v1.10"}, {pass: period, minor: "9", want: "v1.9"}, {pass: period, minor: "10", want: "v1.9"}}},
		"ByTurns": {reason: "one API server of several is old", writes: 2, steps: []step{
			{minor: "35", want: "v1.35"},
			{pass: period, times: 10, minor: "36", want: "v1.35"}, {pass: period, minor: "35", want: "v1.35"},
			{pass: period, times: 19, minor: "36", want: "v1.35"}, {pass: period, minor: "35", want: "v1.35"},
			{pass: period, times: 19, minor: "36", want: "v1.35"}, {pass: period, minor: "36", want: "v1.36"}}},
		"NewFirst": {reason: "the provider starts in the middle of an upgrade", writes: 2, steps: []step{
			{minor: "36", want: "v1.36"}, {pass: period, minor: "35", want: "v1.35"}, {pass: period, times: 19, minor: "36", want: "v1.35"}}},
		"TwoUpgrades": {reason: "the version between counts until it is gone for ten minutes itself", writes: 3, steps: []step{
			{minor: "34", want: "v1.34"}, {pass: period, times: 10, minor: "35", want: "v1.34"},
			{pass: period, times: 9, minor: "36", want: "v1.34"}, {pass: period, times: 10, minor: "36", want: "v1.35"},
			{pass: period, minor: "36", want: "v1.36"}}},
		"Restart": {reason: "the ten minutes begin again", writes: 2, steps: []step{
			{minor: "35", want: "v1.35"}, {pass: period, times: 19, minor: "36", want: "v1.35"},
			{restarts: true, pass: period, minor: "36", want: "v1.35"},
			{pass: period, times: 19, minor: "36", want: "v1.35"}, {pass: period, minor: "36", want: "v1.36"}}},
		"LongDown": {reason: "nobody has looked", writes: 1, steps: []step{
			{minor: "35", want: "v1.35"}, {restarts: true, pass: 100 * time.Hour, minor: "36", want: "v1.35"}}},
		"ClockForward": {reason: "the clock shows time in which nobody has looked", writes: 1, steps: []step{
			{minor: "35", want: "v1.35"}, {pass: period, minor: "36", want: "v1.35"},
			{pass: time.Hour, minor: "36", want: "v1.35"}, {pass: period, times: 16, minor: "36", want: "v1.35"}}},
		"ClockBack": {reason: "the window neither ends nor never ends", writes: 2, steps: []step{
			{minor: "35", want: "v1.35"}, {pass: period, times: 10, minor: "36", want: "v1.35"},
			{pass: -time.Hour, minor: "36", want: "v1.35"}, {pass: period, times: 9, minor: "36", want: "v1.35"},
			{pass: period, minor: "36", want: "v1.36"}}},
		"ClockBackAndForward": {reason: "as when another process sets it by turns", writes: 1, steps: []step{
			{minor: "35", want: "v1.35"}, {pass: time.Hour, minor: "36", want: "v1.35"}, {pass: -time.Hour, minor: "36", want: "v1.35"},
			{pass: time.Hour, minor: "36", want: "v1.35"}, {pass: -time.Hour, minor: "36", want: "v1.35"}}},
		"Outage": {reason: "what does not answer may be the old one", writes: 1, steps: []step{
			{minor: "35", want: "v1.35"}, {pass: period, times: 100}, {pass: period, minor: "36", want: "v1.35"}}},
		"Unreadable": {reason: "it is as it was: the versions that are known stay", writes: 1, steps: []step{
			{minor: "35", want: "v1.35"}, {pass: period, minor: "main", want: "v1."}, {pass: period, minor: "36", want: "v1.35"}}},
		"RolledBack": {reason: "an older API server may not get newer kubelets", writes: 2, steps: []step{
			{minor: "36", want: "v1.36"}, {pass: period, times: 100, minor: "35", want: "v1.35"}}},
		"AskedOften": {reason: "each node is looked at", writes: 1, steps: []step{
			{minor: "36", want: "v1.36"}, {pass: time.Millisecond, times: 100, minor: "35", want: "v1.36"}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for i, s := range tc.steps {
				if s.restarts {
					f.restart()
				}
				f.service.LeadsTo(answers(s.minor))
				for range max(s.times, 1) {
					f.pass(s.pass)
					got, err := f.Least(t.Context())
					if got != s.want || (err != nil) != (s.want == "") {
						t.Fatalf("%s: after step %d servers follow %q, want %q: %v", tc.reason, i, got, s.want, err)
					}
				}
			}
			if last := tc.steps[len(tc.steps)-1].want; f.stored() != last || f.writes != tc.writes {
				t.Errorf("%s: %q is stored, want %q; %d writes, want %d", tc.reason, f.stored(), last, f.writes, tc.writes)
			}
		})
	}
}

// answers is an API server of that minor version, or none.
func answers(minor string) tenanttest.Backend {
	if minor == "" {
		return func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") }
	}
	return tenanttest.Version("1", minor)
}

// TestNotStored: nobody acts on a version that a restart would forget, and it is not lost.
func TestNotStored(t *testing.T) {
	f := newFixture(t)
	f.refuse = apierrors.NewConflict(schema.GroupResource{}, f.key.Name, errors.New("it has changed"))
	f.service.LeadsTo(answers("35"))
	if got, err := f.Least(t.Context()); !apierrors.IsConflict(err) {
		t.Errorf("got %q, %v; want the conflict", got, err)
	}
	if result, err := f.Reconcile(t.Context()); err != nil || result.RequeueAfter == 0 || result.RequeueAfter >= 30*time.Second {
		t.Errorf("a conflict is retried soon: %+v, %v", result, err)
	}
	f.refuse = nil
	f.service.LeadsTo(answers("36"))
	if got, err := f.Least(t.Context()); got != "v1.35" || err != nil || f.stored() != "v1.35" {
		t.Errorf("got %q, %v, stored %q; want what was seen before", got, err, f.stored())
	}
	if result, err := f.Reconcile(t.Context()); err != nil || result.RequeueAfter != 30*time.Second {
		t.Errorf("it is asked in time: %+v, %v", result, err)
	}
}

// TestOwnConnections: what is in front of the API servers chooses one for each connection, so each answer has its own.
func TestOwnConnections(t *testing.T) {
	f := newFixture(t)
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major":"1","minor":"36"}`))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	controller, err := kubernetesversion.NewController(f.clock, tenanttest.ClustersOf(f.key, environment.Client, environment.Client), config)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		f.pass(time.Minute)
		if _, err := controller.Least(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := connections.Load(); got != 5 {
		t.Errorf("5 answers came over %d connections", got)
	}
}
