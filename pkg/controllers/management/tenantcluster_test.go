// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package management_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/tenantcluster"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

// tenantTest is a tenant with two Machines, and another tenant's Machine.
type tenantTest struct {
	t          *testing.T
	controller *tenantcluster.Controller
	tenant     *v1alpha1.TenantCluster
}

func newTenantTest(t *testing.T) *tenantTest {
	t.Helper()
	w := &tenantTest{t: t, controller: tenantcluster.NewController(environment.Client, environment.Client, events.NewFakeRecorder(10),
		clock.RealClock{})}
	w.tenant = &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: environment.Namespace(t), Name: "blue"}}
	w.tenant.Spec.APIServerEndpoint = "192.0.2.1:6443"
	w.create(w.tenant)
	for name, tenant := range map[string]string{"one": "blue", "two": "blue", "others": "red"} {
		machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant.Namespace, Name: name,
			Finalizers: []string{v1alpha1.MachineFinalizer}}}
		machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "h100"}
		machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: tenant}
		w.create(machine)
	}
	return w
}

func (w *tenantTest) create(object client.Object) {
	w.t.Helper()
	if err := environment.Client.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *tenantTest) reconcile() error {
	_, err := w.controller.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.tenant)})
	return err
}

// step reconciles, which must succeed.
func (w *tenantTest) step() {
	w.t.Helper()
	if err := w.reconcile(); err != nil {
		w.t.Fatal(err)
	}
}

// left returns the TenantCluster, nil if it is gone.
func (w *tenantTest) left() *v1alpha1.TenantCluster {
	w.t.Helper()
	tenant := &v1alpha1.TenantCluster{}
	err := environment.Client.Get(w.t.Context(), client.ObjectKeyFromObject(w.tenant), tenant)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return tenant
}

func (w *tenantTest) machine(name string) *v1alpha1.Machine {
	w.t.Helper()
	machine := &v1alpha1.Machine{}
	if err := environment.Client.Get(w.t.Context(), client.ObjectKey{Namespace: w.tenant.Namespace, Name: name}, machine); err != nil {
		w.t.Fatal(err)
	}
	return machine
}

// returned plays the Machine controller that has given a server back.
func (w *tenantTest) returned(name string) {
	w.t.Helper()
	machine := w.machine(name)
	machine.Finalizers = nil
	if err := environment.Client.Update(w.t.Context(), machine); err != nil {
		w.t.Fatal(err)
	}
}

func TestDeletionWaitsForMachines(t *testing.T) {
	w := newTenantTest(t)
	w.step()
	if err := environment.Client.Delete(t.Context(), w.tenant); err != nil {
		t.Fatal(err)
	}
	w.step()
	for _, name := range []string{"one", "two"} {
		if w.machine(name).DeletionTimestamp.IsZero() {
			t.Errorf("Machine %s of the tenant is not being deleted", name)
		}
	}
	if !w.machine("others").DeletionTimestamp.IsZero() {
		t.Error("a Machine of another tenant is being deleted")
	}
	w.returned("one")
	w.step()
	left := w.left()
	if left == nil {
		t.Fatal("the TenantCluster is gone before its last server is back")
	}
	condition := meta.FindStatusCondition(left.Status.Conditions, v1alpha1.ConditionServersReturned)
	if condition == nil || !strings.HasPrefix(condition.Message, "waiting for 1 Machines") {
		t.Errorf("ServersReturned is %+v, want it to say that 1 Machine is left", condition)
	}
	w.returned("two")
	w.step()
	if w.left() != nil {
		t.Error("the TenantCluster is still there although every server is back")
	}
}

// TestStatusHasTwoWriters: the manager sums up what the provider has written and leaves it, and writes nothing that it has written
// already.
func TestStatusHasTwoWriters(t *testing.T) {
	w := newTenantTest(t)
	w.step() // sets the finalizer
	w.step()
	if ready := conditions.Find(w.left().Status.Conditions, v1alpha1.ConditionReady); ready.Reason != v1alpha1.ReasonNotReported {
		t.Errorf("before the provider has reported: %+v", ready)
	}
	provider, refused := w.left(), metav1.Condition{Type: v1alpha1.ConditionKubeconfigAccepted, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonKubeconfigRefused, Message: "renew it"}
	conditions.Set(&provider.Status.Conditions, refused)
	provider.Status.ObservedClusterUID = env.UID(t.Name())
	if err := environment.Client.Status().Update(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	w.step()
	after := w.left()
	stalled := conditions.Find(after.Status.Conditions, v1alpha1.ConditionStalled)
	kept := conditions.Find(after.Status.Conditions, refused.Type)
	if stalled.Message != refused.Message || kept.Message != refused.Message {
		t.Errorf("the provider is refused: Stalled %+v, its condition %+v", stalled, kept)
	}
	if want := (v1alpha1.RolloutStatus{Total: 2, Unavailable: 2}); after.Status.Rollout == nil || *after.Status.Rollout != want {
		t.Errorf("rollout %+v, want %+v", after.Status.Rollout, want)
	}
	if after.Status.ObservedGeneration != after.Generation {
		t.Errorf("observedGeneration %d, want %d", after.Status.ObservedGeneration, after.Generation)
	}
	w.step()
	if again := w.left(); again.ResourceVersion != after.ResourceVersion {
		t.Error("a status that is as before was written again")
	}
}

// TestProviderFallsSilent: a TenantCluster is looked at when its provider has not renewed for too long by the manager's clock, whatever the
// provider's clock shows. The manager writes that once, and does not forget it when it starts again. A provider that never renewed, such as
// an earlier version, is not silent.
func TestProviderFallsSilent(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		ahead  time.Duration
	}{
		"SameTime": {reason: "both clocks are right"},
		"Ahead":    {reason: "a dead provider is found although its last renewal is in the future", ahead: 5 * time.Hour},
		"Behind":   {reason: "a provider that works is not blamed for its clock", ahead: -5 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) { fallsSilent(t, tc.reason, tc.ahead) })
	}
}

func fallsSilent(t *testing.T, reason string, ahead time.Duration) {
	w := newTenantTest(t)
	began := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	clk := clocktesting.NewFakePassiveClock(began)
	start := func() {
		w.controller = tenantcluster.NewController(environment.Client, environment.Client, events.NewFakeRecorder(10), clk)
	}
	start()
	w.step()
	write := func(change func(*v1alpha1.TenantClusterStatus)) {
		t.Helper()
		tenant := w.left()
		change(&tenant.Status)
		if err := environment.Client.Status().Update(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	renew := func(passed time.Duration) {
		t.Helper()
		write(func(status *v1alpha1.TenantClusterStatus) {
			status.ProviderRenewTime = ptr.To(metav1.NewTime(began.Add(passed + ahead)))
		})
	}
	// look has the manager look, and wants it to look again after a while, or, with 0, that it calls the provider silent.
	look := func(passed, again time.Duration, why string) {
		t.Helper()
		clk.SetTime(began.Add(passed))
		result, err := w.controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.tenant)})
		if err != nil {
			t.Fatal(err)
		}
		got, want := conditions.Find(w.left().Status.Conditions, v1alpha1.ConditionReady), v1alpha1.ReasonIdentified
		if again == 0 {
			want = v1alpha1.ReasonProviderSilent
		}
		if result.RequeueAfter != max(again, 0) || got.Reason != want {
			t.Errorf("%s: %s: Ready is %+v, again in %v", reason, why, got, result.RequeueAfter)
		}
	}
	write(func(status *v1alpha1.TenantClusterStatus) { status.ObservedClusterUID = env.UID(t.Name()) })
	look(time.Hour, -1, "it has never renewed")
	began = began.Add(time.Hour)
	renew(0)
	look(0, 3*time.Minute, "it has just renewed")
	look(time.Minute, 2*time.Minute, "it has renewed a minute ago")
	look(3*time.Minute, 0, "it has renewed three minutes ago")
	silent := w.left()
	if stalled := conditions.Find(silent.Status.Conditions, v1alpha1.ConditionStalled); stalled.Reason != v1alpha1.ReasonProviderSilent ||
		!strings.Contains(stalled.Message, "since "+began.Add(ahead).Format(time.RFC3339)) {
		t.Errorf("%s: nobody is told: %+v", reason, silent.Status.Conditions)
	}
	look(4*time.Minute, 0, "it has not renewed since")
	start()
	look(5*time.Minute, 0, "a manager that starts again has heard nothing either")
	if again := w.left(); again.ResourceVersion != silent.ResourceVersion {
		t.Errorf("%s: a status that is as before was written again", reason)
	}
	renew(6 * time.Minute)
	look(6*time.Minute, 3*time.Minute, "it renews again")
	start()
	look(time.Hour, 3*time.Minute, "a manager that starts again has listened for no time")
	look(time.Hour+3*time.Minute, 0, "it has heard nothing since")
}

// TestHeldMachineHoldsNoTenant: a Machine that has given its server back, and that a finalizer of another holds, does not hold
// the TenantCluster.
func TestHeldMachineHoldsNoTenant(t *testing.T) {
	w := newTenantTest(t)
	w.step()
	if err := environment.Client.Delete(t.Context(), w.tenant); err != nil {
		t.Fatal(err)
	}
	w.step()
	w.returned("one")
	held := w.machine("two")
	if err := environment.Client.Delete(t.Context(), held, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	held = w.machine("two")
	if !controllerutil.RemoveFinalizer(held, v1alpha1.MachineFinalizer) || len(held.Finalizers) != 1 {
		t.Fatalf("the finalizers are %v: the test is not one", held.Finalizers)
	}
	if err := environment.Client.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	w.step()
	if w.left() != nil {
		t.Error("the TenantCluster waits for a Machine without a server")
	}
}

// TestStandAloneLeavesWithTheTenant: Machines that name no TenantCluster are released with the one that they are charged to, and none
// outlives the last one of the namespace.
func TestStandAloneLeavesWithTheTenant(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		policy v1alpha1.StandAlonePolicy
		// neighbour of the TenantCluster, which stays; none if it is empty.
		neighbour v1alpha1.StandAlonePolicy
		released  bool
	}{
		"Allowed":   {"it is on the account of the tenant", v1alpha1.StandAloneAllowed, v1alpha1.StandAloneForbidden, true},
		"Last":      {"it got its server before it was forbidden", v1alpha1.StandAloneForbidden, "", true},
		"Neighbour": {"it is on the account of another", v1alpha1.StandAloneForbidden, v1alpha1.StandAloneAllowed, false},
		"NotKnown":  {"it may belong to the one that stays", v1alpha1.StandAloneForbidden, v1alpha1.StandAloneForbidden, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenantTest(t)
			w.tenant.Spec.StandAloneMachines = tc.policy
			if err := environment.Client.Update(t.Context(), w.tenant); err != nil {
				t.Fatal(err)
			}
			if tc.neighbour != "" {
				neighbour := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant.Namespace, Name: "neighbour"}}
				neighbour.Spec.APIServerEndpoint, neighbour.Spec.StandAloneMachines = "192.0.2.2:6443", tc.neighbour
				w.create(neighbour)
			}
			alone := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: w.tenant.Namespace, Name: "alone",
				Finalizers: []string{v1alpha1.MachineFinalizer}}}
			alone.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "h100"}
			w.create(alone)
			w.step()
			if err := environment.Client.Delete(t.Context(), w.tenant); err != nil {
				t.Fatal(err)
			}
			w.step()
			if released := !w.machine("alone").DeletionTimestamp.IsZero(); released != tc.released {
				t.Errorf("%s: it is released: %v, want %v", tc.reason, released, tc.released)
			}
			w.returned("one")
			w.returned("two")
			w.step()
			if gone := w.left() == nil; gone == tc.released {
				t.Errorf("%s: the TenantCluster is gone: %v", tc.reason, gone)
			}
		})
	}
}

// Invariant 5: the finalizer stays while the Machines cannot be listed.
func TestOutageKeepsFinalizer(t *testing.T) {
	w := newTenantTest(t)
	w.step()
	if err := environment.Client.Delete(t.Context(), w.tenant); err != nil {
		t.Fatal(err)
	}
	withWatch, err := client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	down := errors.New("the API server is down")
	w.controller = tenantcluster.NewController(environment.Client, interceptor.NewClient(withWatch, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return down },
	}), events.NewFakeRecorder(10), clock.RealClock{})
	if err := w.reconcile(); !errors.Is(err, down) {
		t.Errorf("got %v, want %v", err, down)
	}
	if w.left() == nil {
		t.Error("the TenantCluster is gone before its servers are released")
	}
}

// After a crash at any write, the next run completes the deletion.
func TestTenantClusterCrash(t *testing.T) {
	for writes := range 6 {
		w := newTenantTest(t)
		w.step()
		if err := environment.Client.Delete(t.Context(), w.tenant); err != nil {
			t.Fatal(err)
		}
		healthy, left, dead := w.controller, writes, errors.New("the process is dead")
		withWatch, err := client.NewWithWatch(environment.Config, client.Options{Scheme: environment.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		write := func() error {
			if left == 0 {
				return dead
			}
			left--
			return nil
		}
		crashing := interceptor.NewClient(withWatch, interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
				if err := write(); err != nil {
					return err
				}
				return c.Delete(ctx, object, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if err := write(); err != nil {
					return err
				}
				return c.Patch(ctx, object, patch, opts...)
			},
		})
		w.controller = tenantcluster.NewController(crashing, environment.Client, events.NewFakeRecorder(10), clock.RealClock{})
		_ = w.reconcile() // it may have crashed
		w.controller = healthy
		w.step()
		w.returned("one")
		w.returned("two")
		w.step()
		if w.left() != nil {
			t.Errorf("after a crash at write %d the TenantCluster stays for ever", writes)
		}
	}
}

// TestNodesAreDrainedFirst: Machines of NodeClaims stay while the provider drains their nodes, within a bound, whatever the clock of the
// manager says. Others do not wait.
func TestNodesAreDrainedFirst(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"Right": 0, "Ahead": 5 * time.Hour, "Behind": -5 * time.Hour} {
		t.Run(name, func(t *testing.T) { testDrainedFirst(t, ahead) })
	}
}

func testDrainedFirst(t *testing.T, ahead time.Duration) {
	for name, tc := range map[string]struct {
		reason  string
		uid     string
		drained metav1.ConditionStatus
		timeout time.Duration
		after   time.Duration
		deleted bool
		message string
	}{
		"Draining": {reason: "the provider drains", uid: env.UID("u"), drained: metav1.ConditionFalse, after: 10 * time.Minute,
			message: "waiting for 2 Machines to be deleted: 1 of them wait until the provider has drained their nodes, and are deleted at "},
		"Bound": {reason: "a PodDisruptionBudget holds a pod", uid: env.UID("u"), drained: metav1.ConditionFalse, after: 16 * time.Minute,
			deleted: true},
		"OwnBound": {reason: "the bound is the author's", uid: env.UID("u"), drained: metav1.ConditionFalse, timeout: time.Hour,
			after: 50 * time.Minute},
		"OwnBoundOver": {reason: "and is one", uid: env.UID("u"), drained: metav1.ConditionFalse, timeout: time.Hour, after: 61 * time.Minute,
			deleted: true},
		"Drained":  {reason: "nothing is left to be drained", uid: env.UID("u"), drained: metav1.ConditionTrue, deleted: true},
		"Starting": {reason: "the provider may be starting", uid: env.UID("u"), after: time.Minute},
		"NotThere": {reason: "no provider has begun", uid: env.UID("u"), after: 3 * time.Minute, deleted: true},
		"Never":    {reason: "no provider has ever been there", deleted: true},
		"AtOnce":   {reason: "the author wants no drain", uid: env.UID("u"), timeout: time.Nanosecond, after: time.Second, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, recorder := newTenantTest(t), events.NewFakeRecorder(10)
			machine := w.machine("one")
			machine.Labels = map[string]string{v1alpha1.NodeClaimLabelKey: "one"}
			machine.Spec.Node = &v1alpha1.MachineNode{Name: "one"}
			if err := environment.Client.Update(t.Context(), machine); err != nil {
				t.Fatal(err)
			}
			if tc.timeout != 0 {
				w.tenant.Spec.DrainTimeout = &metav1.Duration{Duration: tc.timeout.Truncate(time.Second)}
				if err := environment.Client.Update(t.Context(), w.tenant); err != nil {
					t.Fatal(err)
				}
			}
			w.step()
			tenant := w.left()
			tenant.Status.ClusterUID = tc.uid
			if tc.drained != "" {
				conditions.Set(&tenant.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionNodesDrained, Status: tc.drained,
					Reason: "Test", LastTransitionTime: metav1.Now()})
			}
			if err := environment.Client.Status().Update(t.Context(), tenant); err != nil {
				t.Fatal(err)
			}
			if err := environment.Client.Delete(t.Context(), w.tenant); err != nil {
				t.Fatal(err)
			}
			clk := clocktesting.NewFakePassiveClock(w.left().DeletionTimestamp.Add(ahead))
			w.controller = tenantcluster.NewController(environment.Client, environment.Client, recorder, clk)
			w.step()
			clk.SetTime(clk.Now().Add(tc.after))
			w.step()
			if deleted := !w.machine("one").DeletionTimestamp.IsZero(); deleted != tc.deleted {
				t.Errorf("%s: the Machine with a node is deleted: %v, want %v", tc.reason, deleted, tc.deleted)
			}
			if w.machine("two").DeletionTimestamp.IsZero() {
				t.Error("the Machine that was made by hand waits")
			}
			condition := conditions.Find(w.left().Status.Conditions, v1alpha1.ConditionServersReturned)
			if !strings.HasPrefix(condition.Message, tc.message) {
				t.Errorf("ServersReturned says %q, want %q", condition.Message, tc.message)
			}
			if reported := len(recorder.Events) > 0; reported != tc.deleted {
				t.Errorf("%s: an event says that the node is not drained: %v, want %v", tc.reason, reported, tc.deleted)
			}
		})
	}
}
