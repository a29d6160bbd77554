// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaimstatus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

const providerID = "metal3://metal3/server-1/gpu-1"

// request is for the NodeClaim of the fixture.
var request = requestFor("gpu-1")[0]

func serverReady(nodeClaim *karpv1.NodeClaim) metav1.Condition {
	return conditions.Find(nodeClaim.Status.Conditions, v1alpha1.ConditionServerReady)
}

// recorded are the events, as "Kind name reason: message".
type recorded []string

func (r *recorded) Event(object runtime.Object, eventType, reason, message string) {
	*r = append(*r, kindOf(object.(client.Object))+" "+object.(client.Object).GetName()+" "+eventType+" "+reason+": "+message)
}

func (r *recorded) Eventf(object runtime.Object, eventType, reason, format string, arguments ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(format, arguments...))
}

func (r *recorded) AnnotatedEventf(object runtime.Object, _ map[string]string, eventType, reason, format string, arguments ...any) {
	r.Eventf(object, eventType, reason, format, arguments...)
}

func kindOf(object client.Object) string {
	switch object.(type) {
	case *karpv1.NodeClaim:
		return "NodeClaim"
	case *karpv1.NodePool:
		return "NodePool"
	case *corev1.Node:
		return "Node"
	}
	return "?"
}

// fixture is a NodeClaim of a pool, its Machine, and maybe its Node.
type fixture struct {
	t          *testing.T
	api        client.Client
	writes     int
	conflict   bool              // every write is refused
	cached     *v1alpha1.Machine // if not nil, the cache has this Machine
	clock      *clocktesting.FakePassiveClock
	recorded   *recorded
	controller *Controller
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "gpu-1", UID: "claim", Labels: map[string]string{karpv1.NodePoolLabelKey: "gpu"}, Finalizers: []string{karpv1.TerminationFinalizer},
	}}
	nodeClaim.Status.ProviderID = providerID
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenant-a", Name: "gpu-1", UID: "machine", Labels: map[string]string{v1alpha1.NodeClaimLabelKey: "gpu-1"},
		Annotations: map[string]string{v1alpha1.NodeClaimUIDAnnotationKey: "claim"},
	}}
	machine.Spec.TenantClusterRef = &v1alpha1.NameReference{Name: "blue"}
	machine.Status.ProviderID = providerID
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w := &fixture{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), recorded: &recorded{}}
	direct := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(nodeClaim, machine, node).
		WithObjects(nodeClaim, machine, node, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}).
		WithIndex(&corev1.Node{}, tenant.NodeProviderIDField,
			func(o client.Object) []string { return []string{o.(*corev1.Node).Spec.ProviderID} }).
		Build()
	w.api = interceptor.NewClient(direct, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			if w.writes++; w.conflict {
				return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), nil)
			}
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		},
	})
	// The cache of the management cluster may be behind its API server.
	cache := interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if machine, ok := object.(*v1alpha1.Machine); ok && w.cached != nil {
				w.cached.DeepCopyInto(machine)
				return nil
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	w.controller = NewController(w.clock, tenant.Clusters{
		TenantCluster: types.NamespacedName{Namespace: "tenant-a", Name: "blue"}, Tenant: tenant.Cluster{Client: w.api, Live: w.api},
		Management: tenant.Cluster{Client: cache, Live: w.api},
	}, events.NewRecorder(w.recorded), DefaultResourcesGrace)
	return w
}

func (w *fixture) machine() *v1alpha1.Machine {
	w.t.Helper()
	machine := &v1alpha1.Machine{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: "tenant-a", Name: "gpu-1"}, machine); err != nil {
		w.t.Fatal(err)
	}
	return machine
}

// reaches sets the stage of the Machine.
func (w *fixture) reaches(stage v1alpha1.MachineStage) {
	w.t.Helper()
	machine := w.machine()
	machine.Status.Progress = &v1alpha1.MachineProgress{Stage: stage}
	if err := w.api.Status().Update(context.Background(), machine); err != nil {
		w.t.Fatal(err)
	}
}

// set sets conditions of the Machine, and reconciles.
func (w *fixture) set(conditions ...metav1.Condition) {
	w.t.Helper()
	machine := w.machine()
	for _, condition := range conditions {
		meta.SetStatusCondition(&machine.Status.Conditions, condition)
	}
	if err := w.api.Status().Update(context.Background(), machine); err != nil {
		w.t.Fatal(err)
	}
	w.reconcile()
}

func (w *fixture) reconcile() {
	w.t.Helper()
	if _, err := w.controller.Reconcile(context.Background(), request); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) nodeClaim() *karpv1.NodeClaim {
	w.t.Helper()
	nodeClaim := &karpv1.NodeClaim{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: "gpu-1"}, nodeClaim); err != nil {
		w.t.Fatal(err)
	}
	return nodeClaim
}

func (w *fixture) node() corev1.Node {
	w.t.Helper()
	node := corev1.Node{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: "gpu-1"}, &node); err != nil {
		w.t.Fatal(err)
	}
	return node
}

func is(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// The NodeClaim has the state of its server, each stage gets one event, and nothing is written twice.
func TestServerReady(t *testing.T) {
	w := newFixture(t)
	for _, step := range []struct {
		stage   v1alpha1.MachineStage
		message string
		event   bool
	}{
		{v1alpha1.StageUserData, "preparing user data, step 2 of 5, 0 min: soon", true},
		{v1alpha1.StageWriting, "writing image, step 3 of 5, 2 min; usually 18 min: Metal3 is at it", true},
		{v1alpha1.StageWriting, "writing image, step 3 of 5, 7 min; usually 18 min: Metal3 is at it", false},
		{v1alpha1.StageBooting, "booting, step 4 of 5, 12 min; usually 18 min: the server boots", true},
	} {
		events, writes := len(*w.recorded), w.writes
		w.reaches(step.stage)
		w.set(is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProvisioning, step.message))
		w.reconcile()
		if got := serverReady(w.nodeClaim()); got.Status != metav1.ConditionFalse || got.Message != step.message {
			t.Errorf("condition %+v, want %q", got, step.message)
		}
		if w.writes != writes+1 {
			t.Errorf("%d writes for %q, want 1", w.writes-writes, step.message)
		}
		if reported := len(*w.recorded) > events; reported != step.event {
			t.Errorf("event for %q: %v, want %v", step.message, reported, step.event)
		}
	}
	if got, want := (*w.recorded)[1], "NodeClaim gpu-1 Normal Provisioning: writing image, step 3 of 5, 2 min; usually 18 min: Metal3 is at "+
		"it"; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	w.set(is(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonJoined, "server metal3/server-1 is node gpu-1"),
		is(v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined, ""))
	if got := serverReady(w.nodeClaim()); got.Status != metav1.ConditionTrue || got.LastTransitionTime.Unix() != 1000 {
		t.Errorf("condition %+v, want it to be true since 1000", got)
	}
	if conditions := w.node().Status.Conditions; len(conditions) != 1 {
		t.Errorf("the node of a server that is well has conditions %+v", conditions)
	}
}

// A stage that a server passes at once costs no write and no event. What is wrong is said at once.
func TestShortStagesAreNotWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		ready     metav1.Condition
		beganAgo  time.Duration
		wantAfter time.Duration
	}{
		"JustBegun": {"most servers pass it at once", is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProvisioning, "x"),
			500 * time.Millisecond, 1500 * time.Millisecond},
		"Settled": {"the server is there for a while", is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProvisioning, "x"),
			minStageDuration, 0},
		"Own": {"this provider is about to write what it joins with",
			is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWaitingForBootstrapData, "x"), 4 * time.Second, 6 * time.Second},
		"OwnTooLong": {"something keeps this provider from it",
			is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWaitingForBootstrapData, "x"), minOwnDuration, 0},
		"Wrong": {"errors are shown at once", is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonHostError, "x"), 0, 0},
		"Ready": {"it is the last stage", is(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonJoined, "x"), 0, 0},
		"OtherClock": {"the clock of the manager is ahead", is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProvisioning, "x"),
			-time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			machine := w.machine()
			machine.Status.Progress = &v1alpha1.MachineProgress{Stage: v1alpha1.StageWriting,
				LastProgressTime: metav1.NewTime(w.clock.Now().Add(-tc.beganAgo))}
			machine.Status.Conditions = []metav1.Condition{tc.ready}
			w.cached = machine // an API server would cut the time to seconds
			result, err := w.controller.Reconcile(t.Context(), request)
			wrote := serverReady(w.nodeClaim()).Message == "x" && w.writes == 1 && len(*w.recorded) == 1
			if err != nil || result.RequeueAfter != tc.wantAfter || wrote != (tc.wantAfter == 0) {
				t.Errorf("%s: %v, %v, %d writes, condition %v", tc.reason, result, err, w.writes, serverReady(w.nodeClaim()))
			}
		})
	}
}

// While core writes the NodeClaim, a write that was refused is not repeated at once.
func TestConflictWaits(t *testing.T) {
	w := newFixture(t)
	machine := w.machine()
	machine.Status.Conditions = []metav1.Condition{is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonHostError, "x")}
	w.cached, w.conflict = machine, true
	result, err := w.controller.Reconcile(t.Context(), request)
	if err != nil || result.RequeueAfter != minStageDuration || len(*w.recorded) > 0 {
		t.Errorf("%v, %v, recorded %v", result, err, *w.recorded)
	}
}

// The NodeClaim is deleted, and the NodePool gets an event with the reason.
func TestGivenUp(t *testing.T) {
	w := newFixture(t)
	node := w.node()
	if err := w.api.Delete(t.Context(), &node); err != nil {
		t.Fatal(err)
	}
	why := "given up after 60 min without progress at writing image, step 3 of 5: ..."
	w.set(is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded, why),
		is(v1alpha1.ConditionGivenUp, metav1.ConditionTrue, v1alpha1.ReasonDeadlineExceeded, why))
	if nodeClaim := w.nodeClaim(); nodeClaim.DeletionTimestamp.IsZero() || serverReady(nodeClaim).Reason != v1alpha1.ReasonDeadlineExceeded {
		t.Errorf("deletion %v, condition %+v; want it to be deleted and to say why", nodeClaim.DeletionTimestamp, serverReady(nodeClaim))
	}
	w.reconcile()
	want := []string{
		"NodeClaim gpu-1 Warning DeadlineExceeded: " + why,
		"NodeClaim gpu-1 Warning ServerGivenUp: NodeClaim gpu-1 is deleted, and another server is looked for: " + why,
		"NodePool gpu Warning ServerGivenUp: NodeClaim gpu-1 is deleted, and another server is looked for: " + why,
	}
	if got := strings.Join(*w.recorded, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("recorded\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// The manager did not learn that the node joined, because the provider was down. Pods run on it, so the NodeClaim stays, and
// gets an event.
func TestGivenUpAfterRegistration(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		prepare func(*fixture)
	}{
		"CoreKnows": {"core has seen the node before, which may be gone since", func(w *fixture) {
			nodeClaim, node := w.nodeClaim(), w.node()
			nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
			if err := errors.Join(w.api.Status().Update(t.Context(), nodeClaim), w.api.Delete(t.Context(), &node)); err != nil {
				t.Fatal(err)
			}
		}},
		"CoreDoesNotKnow": {"core was down together with the provider, whose part it is", func(*fixture) {}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			tc.prepare(w)
			w.set(is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded, "too slow"),
				is(v1alpha1.ConditionGivenUp, metav1.ConditionTrue, v1alpha1.ReasonDeadlineExceeded, "too slow"))
			if nodeClaim := w.nodeClaim(); !nodeClaim.DeletionTimestamp.IsZero() {
				t.Errorf("the NodeClaim of a node that is up is deleted: %s", tc.reason)
			}
			want := "NodeClaim gpu-1 Warning ServerGivenUp: its server has been given up, and its node is up all the same and stays: delete the " +
				"NodeClaim when its pods can go (too slow)"
			if got := strings.Join(*w.recorded, "\n"); !strings.Contains(got, want) {
				t.Errorf("recorded\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// A Machine that only the cache has, or that was made for another NodeClaim, deletes nothing.
func TestGivenUpIsReadLive(t *testing.T) {
	givenUp := is(v1alpha1.ConditionGivenUp, metav1.ConditionTrue, v1alpha1.ReasonHostError, "x")
	ready := is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonHostError, "x")
	for name, change := range map[string]func(*fixture, *v1alpha1.Machine){
		"GoneMeanwhile": func(w *fixture, m *v1alpha1.Machine) {
			if err := w.api.Delete(context.Background(), m.DeepCopy()); err != nil {
				w.t.Fatal(err)
			}
		},
		"NotGivenUp": func(*fixture, *v1alpha1.Machine) {}, // the cache is of an earlier Machine, the API server knows better
		"OfAnotherClaim": func(_ *fixture, m *v1alpha1.Machine) {
			m.Annotations[v1alpha1.NodeClaimUIDAnnotationKey], m.Status.ProviderID = "other", "x"
		},
		"OfNobody":      func(_ *fixture, m *v1alpha1.Machine) { m.Labels = nil },
		"OfOtherTenant": func(_ *fixture, m *v1alpha1.Machine) { m.Spec.TenantClusterRef.Name = "red" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.cached = w.machine()
			w.cached.Status.Conditions = []metav1.Condition{ready, givenUp}
			change(w, w.cached)
			if _, err := w.controller.Reconcile(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			if !w.nodeClaim().DeletionTimestamp.IsZero() {
				t.Error("the NodeClaim is deleted")
			}
		})
	}
}

// A node that is up gets ServerReady when its server fails, and when it is well again.
func TestServerReadyOnNode(t *testing.T) {
	w := newFixture(t)
	machine := w.machine()
	machine.Spec.Node = &v1alpha1.MachineNode{Name: "gpu-1"}
	if err := w.api.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	joined := is(v1alpha1.ConditionJoined, metav1.ConditionTrue, v1alpha1.ReasonJoined, "")
	w.set(joined, is(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonHostError,
		"server metal3/server-1: power management error: no answer"))
	node := w.node()
	if len(node.Status.Conditions) != 2 || node.Status.Conditions[1].Status != corev1.ConditionFalse ||
		node.Status.Conditions[1].Reason != v1alpha1.ReasonHostError {
		t.Fatalf("conditions %+v, want ServerReady to be false beside Ready", node.Status.Conditions)
	}
	if !w.nodeClaim().DeletionTimestamp.IsZero() || len(node.Spec.Taints) > 0 {
		t.Error("something was done to the node")
	}
	if text := strings.Join(*w.recorded, "\n"); !strings.Contains(text,
		"Node gpu-1 Warning HostError: server metal3/server-1: power management error: no answer") ||
		!strings.Contains(text, "NodeClaim gpu-1 Warning HostError") {
		t.Errorf("recorded %s", text)
	}
	writes := w.writes
	w.reconcile()
	if w.writes != writes {
		t.Error("the same is written again")
	}
	w.set(joined, is(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonJoined, "server metal3/server-1 is node gpu-1"))
	if node = w.node(); node.Status.Conditions[1].Status != corev1.ConditionTrue {
		t.Errorf("conditions %+v, want ServerReady to be true again", node.Status.Conditions)
	}
}
