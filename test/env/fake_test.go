// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestFakeAgreesWithAPIServer runs the same steps on the fake and on an API server. Both must give the same results.
func TestFakeAgreesWithAPIServer(t *testing.T) {
	t.Run("APIServer", func(t *testing.T) { storesObjects(t, &environment) })
	t.Run("Fake", func(t *testing.T) { storesObjects(t, Fake(t)) })
}

func storesObjects(t *testing.T, e *Environment) {
	t.Helper()
	ctx, c, namespace := t.Context(), e.Client, e.Namespace(t)
	key := types.NamespacedName{Namespace: namespace, Name: "m"}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	want := func(what string, ok bool, got any) {
		t.Helper()
		if !ok {
			t.Errorf("%s: got %v", what, got)
		}
	}
	stored := func() *v1alpha1.Machine {
		t.Helper()
		machine := &v1alpha1.Machine{}
		must("reading", c.Get(ctx, key, machine))
		return machine
	}
	fresh := func() *v1alpha1.Machine {
		machine := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		machine.Spec.NodeTypeRef = &v1alpha1.NameReference{Name: "x"}
		return machine
	}

	machine := fresh()
	machine.Status.Phase, machine.Finalizers = v1alpha1.MachineJoined, []string{"example.com/test"}
	must("creating", c.Create(ctx, machine))
	first := stored()
	want("create sets an identity", first.UID != "" && first.UID == machine.UID && !first.CreationTimestamp.IsZero() && first.Generation == 1,
		first.ObjectMeta)
	want("create drops the status", first.Status.Phase == "" && machine.Status.Phase == "", first.Status.Phase)
	want("create twice", apierrors.IsAlreadyExists(c.Create(ctx, fresh())), "no such error")

	machine.Status.Phase = v1alpha1.MachineJoined
	must("update", c.Update(ctx, machine))
	want("an update does not write the status", stored().Status.Phase == "", stored().Status.Phase)

	machine.Status.Phase, machine.Annotations = v1alpha1.MachineJoined, map[string]string{"a": "b"}
	machine.Status.Progress = &v1alpha1.MachineProgress{Step: 1, Steps: 5, Description: "x", StartTime: metav1.NewTime(time.Unix(1, 7)),
		LastProgressTime: metav1.Now()}
	must("status update", c.Status().Update(ctx, machine))
	second := stored()
	want("a status update writes the status alone", second.Status.Phase == v1alpha1.MachineJoined && second.Annotations["a"] == "" &&
		second.Generation == 1, second)
	must("an update that changes nothing", c.Update(ctx, second.DeepCopy()))
	want("an update that changes nothing keeps the version", stored().ResourceVersion == second.ResourceVersion, stored().ResourceVersion)
	want("times have no fractions of seconds", second.Status.Progress.StartTime.Nanosecond() == 0, second.Status.Progress.StartTime)
	want("a write changes the version", second.ResourceVersion != first.ResourceVersion, second.ResourceVersion)
	want("a stale update", apierrors.IsConflict(c.Update(ctx, first.DeepCopy())), "no conflict")
	patched := first.DeepCopy()
	patched.Annotations = map[string]string{"c": "d"}
	want("a stale patch", apierrors.IsConflict(c.Patch(ctx, patched.DeepCopy(),
		client.MergeFromWithOptions(first, client.MergeFromWithOptimisticLock{}))), "no conflict")
	must("a patch without a version", c.Patch(ctx, patched, client.MergeFrom(first)))
	want("a patch without a version changes what it names", stored().Annotations["c"] == "d" &&
		stored().Status.Phase == v1alpha1.MachineJoined && stored().Generation == 1, stored())
	before := stored()
	powered := before.DeepCopy()
	powered.Spec.Power = &v1alpha1.MachinePower{State: v1alpha1.PowerOff}
	must("patch of the spec", c.Patch(ctx, powered, client.MergeFrom(before)))
	want("a change of the spec is a generation", stored().Generation == 2, stored().Generation)
	other := stored()
	other.UID = "other"
	want("an update under another UID", apierrors.IsConflict(c.Update(ctx, other)), "no conflict")

	wrong := types.UID("other")
	want("a delete of another UID", apierrors.IsConflict(c.Delete(ctx, fresh(), client.Preconditions{UID: &wrong})), "no conflict")
	must("delete", c.Delete(ctx, fresh(), client.Preconditions{UID: &first.UID}))
	deleting := stored()
	want("an object with finalizers stays", !deleting.DeletionTimestamp.IsZero() && deleting.Generation == 3, deleting.ObjectMeta)
	must("delete again", c.Delete(ctx, fresh()))
	want("deleting again changes nothing", stored().ResourceVersion == deleting.ResourceVersion, stored().ResourceVersion)
	unfinished := deleting.DeepCopy()
	unfinished.Finalizers = nil
	must("taking the finalizer off", c.Patch(ctx, unfinished.DeepCopy(), client.MergeFrom(deleting)))
	want("an object without finalizers goes", apierrors.IsNotFound(c.Get(ctx, key, &v1alpha1.Machine{})), "still there")
	want("deleting what is not there", apierrors.IsNotFound(c.Delete(ctx, fresh())), "no such error")

	must("creating again", c.Create(ctx, fresh()))
	want("a new object has another UID", stored().UID != first.UID, stored().UID)
	stale := first.DeepCopy()
	stale.UID = stored().UID
	want("an update with the version of the old one", apierrors.IsConflict(c.Update(ctx, stale)), "no conflict")

	current := stored()
	current.Spec.NodeTypeRef.Name = "another"
	want("an update against a CEL rule", apierrors.IsInvalid(c.Update(ctx, current.DeepCopy())), "no such error")
	current = stored()
	current.Status.Progress = &v1alpha1.MachineProgress{Stage: "Unknown", Step: 1, Steps: 5, Description: "x", StartTime: metav1.Now(),
		LastProgressTime: metav1.Now()}
	want("a status against the schema", apierrors.IsInvalid(c.Status().Update(ctx, current)), "no such error")
	none := fresh()
	none.Name, none.Spec.NodeTypeRef = "none", nil
	want("a create against a CEL rule", apierrors.IsInvalid(c.Create(ctx, none)), "no such error")

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s"}, Data: map[string][]byte{"a": []byte("b")}}
	must("creating a secret", c.Create(ctx, secret))
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	must("reading metadata", c.Get(ctx, client.ObjectKeyFromObject(secret), metadata))
	want("metadata", metadata.UID == secret.UID && metadata.Generation == 0, metadata)
}
