// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/usage"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

var environment env.Environment

func TestMain(m *testing.M) { env.Main(m, &environment) }

// fixture is a server, and the controller of its record.
type fixture struct {
	*Controller
	t     *testing.T
	key   types.NamespacedName
	clock *clocktesting.FakePassiveClock
}

func newFixture(t *testing.T, api *env.Environment) *fixture {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC))
	f := &fixture{t: t, clock: clock, key: types.NamespacedName{Namespace: api.Namespace(t), Name: "server-01"}, Controller: &Controller{
		Record: Record{Client: cached{api.Client}, Live: api.Client, Clock: clock, Retention: DefaultRetention},
	}}
	api.CreateHost(t, env.AvailableHost(f.key.Namespace, f.key.Name, nil))
	return f
}

// cached is a client that reads HostUsages as the manager's cache has them.
type cached struct{ client.Client }

func (c cached) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := c.Client.Get(ctx, key, object, options...)
	if record, ok := object.(*v1alpha1.HostUsage); ok {
		Trim(record)
	}
	return err
}

func (f *fixture) pass(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }

func (f *fixture) reconcile() time.Duration {
	f.t.Helper()
	result, err := f.Reconcile(f.t.Context(), reconcile.Request{NamespacedName: f.key})
	if err != nil {
		f.t.Fatal(err)
	}
	return result.RequeueAfter
}

func (f *fixture) host() *bmov1alpha1.BareMetalHost {
	f.t.Helper()
	host := &bmov1alpha1.BareMetalHost{}
	if err := f.Live.Get(f.t.Context(), f.key, host); err != nil {
		f.t.Fatal(err)
	}
	return host
}

// claim has a Machine claim the server as this manager does, or, with old, as one without a record.
func (f *fixture) claim(name string, old bool) {
	f.t.Helper()
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: name, UID: types.UID("uid-" + name)}}
	machine.Status.Cost = ptr.To(int64(5))
	host := f.host()
	host.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: machine.Namespace,
		Name: name, UID: machine.UID}
	if !old {
		annotations, err := f.Claim(f.t.Context(), machine)
		if err != nil {
			f.t.Fatal(err)
		}
		host.Annotations = annotations
	}
	f.update(host)
}

func (f *fixture) update(host *bmov1alpha1.BareMetalHost) {
	f.t.Helper()
	if err := f.Client.Update(f.t.Context(), host); err != nil {
		f.t.Fatal(err)
	}
}

// drop removes the claim, after End if the release is regular.
func (f *fixture) drop(regular bool) {
	f.t.Helper()
	host := f.host()
	if regular {
		if err := f.End(f.t.Context(), host); err != nil {
			f.t.Fatal(err)
		}
	}
	host.Spec.ConsumerRef, host.Annotations = nil, nil
	f.update(host)
}

// record is what is stored; nil if nothing is.
func (f *fixture) record() *v1alpha1.HostUsage {
	f.t.Helper()
	record := &v1alpha1.HostUsage{}
	if err := f.Live.Get(f.t.Context(), f.key, record); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		f.t.Fatal(err)
	}
	return record
}

// TestRetention: uses go when they have been over for long enough, and the record with the last one of a server that is gone.
func TestRetention(t *testing.T) {
	for name, api := range map[string]*env.Environment{"InMemory": env.Fake(t), "APIServer": &environment} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, api)
			for _, name := range []string{"a", "b", "c", "d"} {
				f.claim(name, false)
				f.reconcile()
				f.pass(10 * 24 * time.Hour)
				f.drop(true)
				f.reconcile()
			}
			record := f.record()
			if len(record.Spec.Uses) != 4 || record.Spec.RemovedUntil != nil {
				t.Fatalf("the record is %+v", record.Spec)
			}
			if *record.Spec.Uses[1].Cost != 5 || record.Spec.Uses[1].End.Sub(record.Spec.Uses[1].Start.Time) != 10*24*time.Hour {
				t.Errorf("the second use is %+v", record.Spec.Uses[1])
			}
			if after := f.reconcile(); after != 60*24*time.Hour {
				t.Errorf("the first use goes in %s, want 60 days", after)
			}
			f.pass(65 * 24 * time.Hour) // from the end of the last one; that of the first one was 30 days before
			f.reconcile()
			if record = f.record(); len(record.Spec.Uses) != 3 || record.Spec.Uses[0].Machine.Name != "b" || record.Spec.RemovedUntil == nil {
				t.Fatalf("after 90 days the record is %+v", record.Spec)
			}
			f.pass(100 * 24 * time.Hour)
			f.reconcile()
			if record = f.record(); len(record.Spec.Uses) != 0 || record.Spec.RemovedUntil == nil {
				t.Fatalf("of a server that is there, until when uses were removed is known: %+v", record)
			}
			if err := f.Client.Delete(t.Context(), f.host()); err != nil {
				t.Fatal(err)
			}
			f.reconcile()
			if record = f.record(); record != nil {
				t.Errorf("the record of a server that is gone is left: %+v", record.Spec)
			}
		})
	}
}

// TestDelayedStart: a start is recorded after some minutes, or with the end, in one write. If the claim goes without a release before
// that, it is recorded from memory.
func TestDelayedStart(t *testing.T) {
	const delay = 5 * time.Minute
	for name, tc := range map[string]struct {
		reason string
		ends   func(f *fixture)
		writes int
		uses   []string
	}{
		"Stands":   {"it is in use", func(f *fixture) { f.pass(delay) }, 1, []string{"a"}},
		"Released": {"the release records all of it", func(f *fixture) { f.drop(true) }, 1, []string{"a 1m"}},
		"ReleasedAndClaimed": {"the next use is as short", func(f *fixture) {
			f.drop(true)
			f.claim("b", false)
			f.reconcile()
			f.pass(time.Minute)
			f.drop(true)
		}, 2, []string{"a 1m", "b 1m"}},
		"ByHand": {"its consumer was removed", func(f *fixture) { f.drop(false) }, 1, []string{"a 1m"}},
		"Forced": {"its BareMetalHost was deleted", func(f *fixture) {
			if err := f.Client.Delete(f.t.Context(), f.host()); err != nil {
				f.t.Fatal(err)
			}
		}, 1, []string{"a 1m"}},
		"Another": {"another Machine has it", func(f *fixture) {
			f.drop(false)
			f.claim("b", false)
		}, 1, []string{"a 1m", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			api, writes := env.Fake(t), 0
			f := newFixture(t, api)
			f.Controller.Delay = delay
			f.Client = interceptor.NewClient(api.Client, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
					writes++
					return c.Create(ctx, object, options...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					writes++
					return c.Patch(ctx, object, patch, options...)
				},
			})
			f.claim("a", false)
			f.pass(time.Minute)
			if after := f.reconcile(); after != delay-time.Minute || writes != 0 {
				t.Fatalf("%d writes, and the next look in %s", writes, after)
			}
			tc.ends(f)
			for range 2 {
				f.reconcile()
			}
			var uses []string
			for _, use := range f.record().Spec.Uses {
				if use.End == nil {
					uses = append(uses, use.Machine.Name)
					continue
				}
				uses = append(uses, use.Machine.Name+" "+strings.TrimSuffix(use.End.Sub(use.Start.Time).String(), "0s"))
			}
			if !slices.Equal(uses, tc.uses) || writes != tc.writes {
				t.Errorf("%s: got uses %v with %d writes, want %v with %d", tc.reason, uses, writes, tc.uses, tc.writes)
			}
		})
	}
}

// TestFoldedUsesAreThereOnce: of short uses the record has only how many there were. One that a manager ends or remembers late is not
// counted again.
func TestFoldedUsesAreThereOnce(t *testing.T) {
	const delay, uses = 5 * time.Minute, 6
	for name, late := range map[string]func(f *fixture, stale *bmov1alpha1.BareMetalHost){
		"Behind": func(f *fixture, stale *bmov1alpha1.BareMetalHost) {
			if err := f.End(f.t.Context(), stale); err != nil {
				f.t.Fatal(err)
			}
		},
		"BehindInUse": func(f *fixture, stale *bmov1alpha1.BareMetalHost) {
			f.claim("last", false)
			if err := f.End(f.t.Context(), stale); err != nil {
				f.t.Fatal(err)
			}
			f.pass(10 * time.Second)
			f.drop(true)
		},
		"Remembered": func(f *fixture, stale *bmov1alpha1.BareMetalHost) { f.reconcile() },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, env.Fake(t))
			f.Controller.Delay = delay
			f.claim("first", false)
			f.reconcile() // it remembers the claim
			stale := f.host()
			for n := range uses {
				if n > 0 {
					f.claim(fmt.Sprint("m-", n), false)
				}
				f.pass(10 * time.Second)
				f.drop(true)
				f.pass(time.Second)
			}
			late(f, stale)
			var count int64
			var lasted time.Duration
			record := f.record().Spec
			for _, use := range record.Uses {
				count, lasted = count+1, lasted+use.End.Sub(use.Start.Time)
			}
			for _, folded := range record.Folded {
				count, lasted = count+folded.Count, lasted+folded.Duration()
			}
			if name == "BehindInUse" {
				count, lasted = count-1, lasted-10*time.Second // the last one
			}
			if count != uses || lasted != uses*10*time.Second || len(record.Folded) != 1 {
				t.Errorf("%d uses of %s in all, want %d of 1m: %+v", count, lasted, uses, record)
			}
		})
	}
}

// TestManyClaimsShortenNoRecord: a server was used for weeks, and then a tenant claims it and gives it back without end. What is to be
// billed is in the record, which stays short.
func TestManyClaimsShortenNoRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		api    *env.Environment
		claims int
	}{"InMemory": {env.Fake(t), 2000}, "APIServer": {&environment, 50}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, tc.api)
			f.claim("billed", false)
			f.pass(20 * 24 * time.Hour)
			f.drop(true)
			for n := range tc.claims {
				f.claim(fmt.Sprintf("%s-%d", strings.Repeat("m", 57), n), false)
				f.pass(time.Second)
				f.drop(true)
			}
			record := f.record().Spec
			var count int64
			for _, folded := range record.Folded {
				count += folded.Count
			}
			billed := record.Uses[0]
			if billed.Machine.Name != "billed" || billed.End.Sub(billed.Start.Time) != 20*24*time.Hour || record.RemovedUntil != nil {
				t.Errorf("the first use is %+v, removed until %v", billed, record.RemovedUntil)
			}
			if size := usage.Bytes(record); int(count)+len(record.Uses) != tc.claims+1 || size > 2048 {
				t.Errorf("%d uses folded and %d more in %d bytes, want %d uses", count, len(record.Uses), size, tc.claims+1)
			}
		})
	}
}

// TestLostClaimEndsBeforeTheNext: a claim is removed by hand, and the server was claimed again and given back before that is seen. Its use
// ends at the next claim at the latest.
func TestLostClaimEndsBeforeTheNext(t *testing.T) {
	f := newFixture(t, env.Fake(t))
	f.Controller.Delay = 5 * time.Minute
	f.claim("lost", false)
	f.reconcile()
	f.pass(2 * time.Minute)
	f.drop(false)
	f.claim("next", false)
	f.pass(time.Hour)
	f.drop(true)
	f.pass(time.Hour)
	f.reconcile()
	lasted := map[string]time.Duration{}
	for _, use := range f.record().Spec.Uses {
		lasted[use.Machine.Name] += use.End.Sub(use.Start.Time)
	}
	if len(lasted) != 2 || lasted["lost"] != 2*time.Minute || lasted["next"] != time.Hour {
		t.Errorf("the uses lasted %v", lasted)
	}
}

// TestClaimOfEarlierVersion: a manager without a record does not say on the host when it has claimed it. The Machine does.
func TestClaimOfEarlierVersion(t *testing.T) {
	api := env.Fake(t)
	f := newFixture(t, api)
	tenant := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "acme"}}
	tenant.Spec.APIServerEndpoint = "acme.example.com:6443"
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "old"}}
	machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "gpu"}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: tenant.Name}
	for _, object := range []client.Object{tenant, machine} {
		if err := api.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	claimed := metav1.NewTime(f.clock.Now().Add(-48 * time.Hour))
	machine.Status.Cost = ptr.To(int64(9))
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue, LastTransitionTime: claimed,
		Reason: v1alpha1.ReasonClaimed}}
	if err := api.Client.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	f.claim("old", true)
	host := f.host()
	host.Spec.ConsumerRef.UID = machine.UID
	f.update(host)
	for range 2 {
		f.reconcile()
		uses := f.record().Spec.Uses
		if len(uses) != 1 || !uses[0].Start.Time.Equal(claimed.Time) || uses[0].TenantCluster != "acme" || *uses[0].Cost != 9 {
			t.Fatalf("the record is %+v", uses)
		}
		f.pass(time.Hour)
	}
	if err := api.Client.Delete(t.Context(), machine); err != nil { // by force, while its server is released
		t.Fatal(err)
	}
	f.drop(true)
	if uses := f.record().Spec.Uses; len(uses) != 1 || uses[0].End == nil {
		t.Errorf("the record is %+v", uses)
	}
}

// TestNoRecord: with a retention of zero nothing is written, and what was is deleted.
func TestNoRecord(t *testing.T) {
	f := newFixture(t, env.Fake(t))
	f.claim("a", false)
	f.reconcile()
	if f.record() == nil {
		t.Fatal("there is no record")
	}
	f.Retention = 0
	f.reconcile()
	f.drop(true)
	f.claim("b", false)
	if annotations := f.host().Annotations; len(annotations) != 0 {
		t.Errorf("the claim is %v", annotations)
	}
	f.reconcile()
	f.drop(true)
	if record := f.record(); record != nil {
		t.Errorf("the record is %+v", record.Spec)
	}
}

// TestNamespaceGoes: in a namespace that is being deleted no record can be made, and its servers must be given back all the same.
func TestNamespaceGoes(t *testing.T) {
	api := env.Fake(t)
	f := newFixture(t, api)
	f.claim("a", false)
	refused := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("hostusages").GroupResource(), f.key.Name, nil)
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	f.Client = interceptor.NewClient(api.Client, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refused },
	})
	f.drop(true)
}

// TestRecordGoesMeanwhile: a record that is deleted between a read and the write is no host that is gone: the server is not taken for
// given back.
func TestRecordGoesMeanwhile(t *testing.T) {
	api := env.Fake(t)
	f := newFixture(t, api)
	f.claim("a", false)
	f.reconcile()
	f.Client = interceptor.NewClient(api.Client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := c.Delete(ctx, f.record()); err != nil {
				t.Fatal(err)
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	if err := f.End(t.Context(), f.host()); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("got %v, want an error that is not NotFound", err)
	}
}

// TestTrimmedRecordIsNotWritten: the cache has two of the uses, and none is lost when one is added.
func TestTrimmedRecordIsNotWritten(t *testing.T) {
	f := newFixture(t, env.Fake(t))
	var want []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.claim(name, false)
		f.reconcile()
		f.pass(time.Hour)
		f.drop(name != "c") // the third was taken by force
		f.reconcile()
		want = append(want, name)
	}
	var got []string
	for _, use := range f.record().Spec.Uses {
		got = append(got, use.Machine.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the record has the Machines %v, want %v", got, want)
	}
}

// TestClaimChanged: of the many updates of a host, only those of its claim matter.
func TestClaimChanged(t *testing.T) {
	host := env.AvailableHost("metal3-system", "server-01", nil)
	claimed := host.DeepCopy()
	claimed.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: "1"}
	later := claimed.DeepCopy()
	later.Status.Provisioning.State, later.Spec.Online = bmov1alpha1.StateProvisioned, true
	timed := claimed.DeepCopy()
	timed.Annotations = map[string]string{v1alpha1.ClaimAnnotationKey: usage.Claim{Machine: "1", Time: metav1.NowMicro()}.String()}
	for name, tc := range map[string]struct {
		reason      string
		from, to    *bmov1alpha1.BareMetalHost
		interesting bool
	}{
		"Claimed":   {"a use begins", host, claimed, true},
		"Released":  {"a use ends", claimed, host, true},
		"Time":      {"the claim is another one", claimed, timed, true},
		"Installed": {"the claim is the same", claimed, later, false},
	} {
		if got := claimChanged.Update(event.UpdateEvent{ObjectOld: tc.from, ObjectNew: tc.to}); got != tc.interesting {
			t.Errorf("%s: %s: got %v", name, tc.reason, got)
		}
	}
}
