// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package timelimits

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const (
	namespace  = "tenant-a"
	providerID = "metal3://metal3/server-1/gpu-1"
)

var start = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// fixture is a tenant with a NodeClaim that was launched at the start, and its Machine, at a time that the test says.
type fixture struct {
	t      *testing.T
	api    client.WithWatch
	clock  *clocktesting.FakeClock
	synced error
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	w := &fixture{t: t, clock: clocktesting.NewFakeClock(start)}
	w.api = fake.NewClientBuilder().WithScheme(scheme.Scheme).
		WithStatusSubresource(&karpv1.NodeClaim{}, &v1alpha1.Machine{}, &corev1.Node{}, &karpv1.NodePool{}).
		WithIndex(&corev1.Node{}, "spec.providerID", func(o client.Object) []string { return []string{o.(*corev1.Node).Spec.ProviderID} }).
		WithObjects(launched("gpu-1", providerID), machineOf("gpu-1", providerID)).Build()
	return w
}

// launched is a NodeClaim whose node has not registered.
func launched(name, id string) *karpv1.NodeClaim {
	nodeClaim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(start),
			Finalizers: []string{karpv1.TerminationFinalizer}},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass",
			Name: "default"}},
		Status: karpv1.NodeClaimStatus{ProviderID: id},
	}
	for kind, is := range map[string]metav1.ConditionStatus{
		karpv1.ConditionTypeLaunched: metav1.ConditionTrue, karpv1.ConditionTypeRegistered: metav1.ConditionUnknown,
		karpv1.ConditionTypeInitialized: metav1.ConditionUnknown, status.ConditionReady: metav1.ConditionUnknown,
	} {
		nodeClaim.Status.Conditions = append(nodeClaim.Status.Conditions, status.Condition{
			Type: kind, Status: is, Reason: "Test", LastTransitionTime: metav1.NewTime(start),
		})
	}
	return nodeClaim
}

func machineOf(name, id string) *v1alpha1.Machine {
	machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Annotations: map[string]string{v1alpha1.NodeClaimUIDAnnotationKey: "uid-" + name},
	}}
	machine.Status.ProviderID = id
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionClaimed, Status: metav1.ConditionTrue}}
	return machine
}

func (w *fixture) machines() Machines {
	return Machines{Client: w.api, Namespace: namespace, Synced: func() error { return w.synced }}
}

// condition sets a condition of the Machine, at the present time.
func (w *fixture) condition(name, kind string, is metav1.ConditionStatus) {
	w.t.Helper()
	machine := &v1alpha1.Machine{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, machine); err != nil {
		w.t.Fatal(err)
	}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: "Test", LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
	if err := w.api.Status().Update(context.Background(), machine); err != nil {
		w.t.Fatal(err)
	}
}

// suspend says of the Machine that no progress is to be expected of it, or is again.
func (w *fixture) suspend(name string, suspended bool) {
	w.t.Helper()
	machine := &v1alpha1.Machine{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, machine); err != nil {
		w.t.Fatal(err)
	}
	machine.Status.Progress = &v1alpha1.MachineProgress{Suspended: suspended}
	if err := w.api.Status().Update(context.Background(), machine); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) deleteMachine(name string) {
	w.t.Helper()
	if err := w.api.Delete(context.Background(), machineOf(name, "")); err != nil {
		w.t.Fatal(err)
	}
}

// at moves the clock to so many minutes after the start.
func (w *fixture) setClock(minutes int) {
	w.clock.SetTime(start.Add(time.Duration(minutes) * time.Minute))
}

func (w *fixture) nodeClaim(name string) *karpv1.NodeClaim {
	w.t.Helper()
	nodeClaim := &karpv1.NodeClaim{}
	err := w.api.Get(context.Background(), client.ObjectKey{Name: name}, nodeClaim)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return nodeClaim
}

var errUnfilled = errors.New("the cache is not filled yet")

// noEvents is a recorder that drops events.
type noEvents struct{}

func (noEvents) Publish(...events.Event) {}

// metal is as much of a cloud provider as core's controllers ask for here.
type metal struct{ cloudprovider.CloudProvider }

func (metal) GetSupportedNodeClasses() []status.Object {
	return []status.Object{&v1alpha1.MetalNodeClass{}}
}
