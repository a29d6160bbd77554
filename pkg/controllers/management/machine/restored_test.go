// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"reflect"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
)

// restore does to objects what restoring a lost cluster with a tool that recreates objects does: they have other UIDs
// and, unless withStatus, no status. Hosts keep theirs, as Metal3 reads it from an annotation.
func (w *fixture) restore(withStatus bool, objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		if finalizers := object.GetFinalizers(); len(finalizers) > 0 {
			bare := object.DeepCopyObject().(client.Object)
			bare.SetFinalizers(nil)
			if err := w.client.Patch(w.t.Context(), bare, client.MergeFrom(object)); err != nil {
				w.t.Fatal(err)
			}
		}
		if err := w.client.Delete(w.t.Context(), object); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, object := range objects {
		status := object.DeepCopyObject().(client.Object)
		object.SetUID("")
		object.SetResourceVersion("")
		w.create(object)
		_, isHost := object.(*bmov1alpha1.BareMetalHost)
		if _, isMachine := object.(*v1alpha1.Machine); isHost || isMachine && withStatus {
			status.SetUID(object.GetUID())
			status.SetResourceVersion(object.GetResourceVersion())
			if err := w.client.Status().Update(w.t.Context(), status); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// lose has the whole cluster lost and restored.
func (w *fixture) lose(withStatus bool) {
	w.t.Helper()
	var all []client.Object
	for _, host := range w.hosts() {
		all = append(all, &host)
	}
	for _, machine := range w.machines() {
		all = append(all, &machine)
	}
	for _, address := range w.addresses() {
		all = append(all, &address)
	}
	for _, secret := range w.secrets() {
		all = append(all, &secret)
	}
	w.restore(withStatus, all...)
}

// pause has Metal3 leave all servers alone, or not any more.
func (w *fixture) pause(paused bool) {
	w.t.Helper()
	for _, host := range w.hosts() {
		before := host.DeepCopy()
		delete(host.Annotations, bmov1alpha1.PausedAnnotation)
		if paused {
			metav1.SetMetaDataAnnotation(&host.ObjectMeta, bmov1alpha1.PausedAnnotation, "restore")
		}
		if err := w.client.Patch(w.t.Context(), &host, client.MergeFrom(before)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestRestored: tools that recreate objects give them other UIDs and no status. The servers still belong to the
// Machines that have them: none is given to another, installed or cleaned, and their addresses stay allocated.
func TestRestored(t *testing.T) {
	cases := map[string]struct {
		reason     string
		withStatus bool
	}{
		"WithoutStatus": {"A status is a subresource, and not written when an object is made.", false},
		"WithStatus":    {"Some tools write it afterwards; then it names hosts by UIDs that are no more.", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newRichFixture(t, 3)
			running := w.start(w.client)
			now := func() *process { return running }
			joined := w.join("runs", now)
			held := w.machine("held", nil)
			w.until("held", now, func() bool { return w.get(held).Status.ProviderID != "" })
			before := map[types.NamespacedName]*v1alpha1.Machine{joined: w.get(joined), held: w.get(held)}
			addresses := w.addresses()

			w.pause(true)
			w.lose(tc.withStatus)
			running = w.start(w.client)
			for range 5 {
				running.round()
				w.checkClaims()
			}
			w.pause(false)
			for range 5 {
				running.round()
				w.checkClaims()
				w.playMetal3()
			}
			running.round()
			claimed := 0
			for _, host := range w.hosts() {
				if host.Spec.ConsumerRef != nil {
					claimed++
				}
			}
			if claimed != len(before) {
				t.Errorf("%s\n%d servers are claimed, want %d", tc.reason, claimed, len(before))
			}
			for key, was := range before {
				is := w.get(key)
				if is.UID == was.UID {
					t.Fatal("the Machine was not recreated")
				}
				if is.Status.ProviderID != was.Status.ProviderID || is.Status.Phase != was.Status.Phase || is.Status.Cost == nil ||
					*is.Status.Cost != *was.Status.Cost {
					t.Errorf("%s\nMachine %s was %s with %s, and is %s with %q (%s)", tc.reason, key.Name, was.Status.Phase, was.Status.ProviderID,
						is.Status.Phase, is.Status.ProviderID, condition(is, v1alpha1.ConditionReady).Message)
					continue
				}
				host := &bmov1alpha1.BareMetalHost{}
				if err := w.client.Get(t.Context(), hosts.Key(*is.Status.HostRef), host); err != nil {
					t.Fatal(err)
				}
				if is.Status.HostRef.UID != host.UID {
					t.Errorf("Machine %s names its host by UID %s, which is %s", key.Name, is.Status.HostRef.UID, host.UID)
				}
				if key == joined && (host.Spec.Image == nil || !host.Spec.Online || host.Status.Provisioning.State != bmov1alpha1.StateProvisioned) {
					t.Errorf("%s\nthe server that runs was emptied: image %v, online %v, state %s", tc.reason, host.Spec.Image, host.Spec.Online,
						host.Status.Provisioning.State)
				}
			}
			if drifted := condition(w.get(joined), v1alpha1.ConditionDrifted); drifted.Status != metav1.ConditionFalse {
				t.Errorf("the condition Drifted is %q (%s): it would never be replaced for another image", drifted.Status, drifted.Message)
			}
			if after := w.addresses(); len(after) != len(addresses) {
				t.Errorf("%s\n%d addresses are taken, want %d: one that is in use has another owner", tc.reason, len(after), len(addresses))
			}

			// The rest of their life is as it would have been.
			for key := range before {
				if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
					t.Fatal(err)
				}
				w.until("held before its return", now, func() bool { return waitsForHook(w.get(key)) })
				w.takeHook(key, v1alpha1.PreReturnHookPrefix)
				w.until("gone", now, func() bool { return w.get(key) == nil })
			}
			w.checkNothingLeft()
		})
	}
}

// TestRestoredAndDeleted: a Machine that is deleted before the manager has seen what server it has takes that along.
func TestRestoredAndDeleted(t *testing.T) {
	w := newFixture(t, 1)
	running := w.start(w.client)
	now := func() *process { return running }
	key := w.machine("m", standAlone)
	w.until("provisioned", now, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	w.lose(false)
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	running = w.start(w.client)
	w.until("gone", now, func() bool { return w.get(key) == nil })
	w.checkNothingLeft()
}

// TestRestoredWithoutField: whatever of its status is not restored, a Machine keeps its server while it lives, and gives it back
// when it is deleted, also if its node was unhealthy.
func TestRestoredWithoutField(t *testing.T) {
	for field := range reflect.TypeFor[v1alpha1.MachineStatus]().Fields() {
		for name, live := range map[string]bool{"Deleted": false, "Lives": true} {
			t.Run(field.Name+name, func(t *testing.T) {
				w := newRichFixture(t, 1)
				running := w.start(w.client)
				now := func() *process { return running }
				key := w.join("runs", now)
				w.pause(true)
				w.lose(true)
				machine := w.get(key)
				reflect.ValueOf(&machine.Status).Elem().FieldByIndex(field.Index).SetZero()
				if err := w.client.Status().Update(t.Context(), machine); err != nil {
					t.Fatal(err)
				}
				w.pause(false)
				running = w.start(w.client)
				if live {
					w.until("joined", now, func() bool {
						is := w.get(key).Status
						return is.Phase == v1alpha1.MachineJoined && is.HostRef != nil && is.NodeTypeRef != nil && is.ProviderID != ""
					})
				}
				w.edit(key, func(machine *v1alpha1.Machine) {
					machine.ReportNode(reportFault)
				})
				if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
					t.Fatal(err)
				}
				w.until("held before its return", now, func() bool { return waitsForHook(w.get(key)) })
				w.takeHook(key, v1alpha1.PreReturnHookPrefix)
				w.until("gone", now, func() bool { return w.get(key) == nil })
				if host := w.hosts()[0]; host.Annotations[v1alpha1.QuarantinedAnnotationKey] == "" {
					t.Error("the server is not quarantined")
				}
				w.annotateHost(w.hosts()[0].Name, v1alpha1.QuarantinedAnnotationKey, "")
				w.checkNothingLeft()
			})
		}
	}
}

// TestUnhealthyWithoutStatus: a Machine that was restored without its status and deleted because its node was unhealthy gives its
// server back.
func TestUnhealthyWithoutStatus(t *testing.T) {
	w := newFixture(t, 1)
	running := w.start(w.client)
	now := func() *process { return running }
	key := w.machine("m", standAlone)
	w.until("provisioned", now, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	w.lose(false)
	w.edit(key, func(machine *v1alpha1.Machine) {
		machine.ReportNode(reportFault)
	})
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	running = w.start(w.client)
	w.until("gone", now, func() bool { return w.get(key) == nil })
	if host := w.hosts()[0]; host.Annotations[v1alpha1.QuarantinedAnnotationKey] == "" || host.Spec.ConsumerRef != nil {
		t.Errorf("quarantined %q, consumer %v", host.Annotations[v1alpha1.QuarantinedAnnotationKey], host.Spec.ConsumerRef)
	}
}

// TestRestoredWithoutServer: a Machine that had no server when the backup was made gets one, like any other.
func TestRestoredWithoutServer(t *testing.T) {
	w := newFixture(t, 0)
	running := w.start(w.client)
	now := func() *process { return running }
	key := w.machine("m", standAlone)
	w.until("pending", now, func() bool { return condition(w.get(key), v1alpha1.ConditionReady).Reason != "" })
	w.lose(false)
	w.api.CreateHost(t, spare(w))
	running = w.start(w.client)
	w.until("provisioned", now, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
}

// TestClaimUIDOfAnotherMachine: what a Machine says of its past gives it nothing that is another's.
func TestClaimUIDOfAnotherMachine(t *testing.T) {
	w := newRichFixture(t, 2)
	running := w.start(w.client)
	now := func() *process { return running }
	victim := w.join("victim", now)
	has := w.get(victim)
	thief := w.machine("thief", func(machine *v1alpha1.Machine) {
		machine.Annotations = map[string]string{v1alpha1.ClaimUIDAnnotationKey: string(has.UID)}
	})
	w.until("held", now, func() bool { return waitsForHook(w.get(thief)) })
	if w.get(thief).Status.HostRef.Name == has.Status.HostRef.Name {
		t.Fatal("it has the other's server")
	}
	w.takeHook(thief, v1alpha1.PreProvisionHookPrefix)
	w.edit(thief, func(machine *v1alpha1.Machine) { machine.Spec.Bootstrap.DataSecretName = "user-data" })
	w.until("provisioned", now, func() bool { return w.get(thief).Status.Phase == v1alpha1.MachineProvisioned })
	if addresses := w.addresses(); len(addresses) != 2 {
		t.Errorf("%d addresses are taken, want one each", len(addresses))
	}
	if err := w.client.Delete(t.Context(), w.get(thief)); err != nil {
		t.Fatal(err)
	}
	w.until("held before its return", now, func() bool { return waitsForHook(w.get(thief)) })
	w.takeHook(thief, v1alpha1.PreReturnHookPrefix)
	w.until("gone", now, func() bool { return w.get(thief) == nil })
	if addresses := w.addresses(); len(addresses) != 1 || addresses[0].Spec.MachineRef.Name != "victim" {
		t.Errorf("after it has gone, the addresses are %+v, want the other's", addresses)
	}
	if is := w.get(victim); is.Status.Phase != v1alpha1.MachineJoined {
		t.Errorf("the other is %s", is.Status.Phase)
	}
}

// join takes a Machine of a rich fixture so far that its node has registered.
func (w *fixture) join(name string, now func() *process) types.NamespacedName {
	w.t.Helper()
	key := w.machine(name, nil)
	w.until("held", now, func() bool { return waitsForHook(w.get(key)) })
	w.takeHook(key, v1alpha1.PreProvisionHookPrefix)
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: w.tenant, Name: "user-data"},
		&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}); err != nil {
		w.userData("user-data")
	}
	w.edit(key, func(machine *v1alpha1.Machine) {
		machine.Spec.Bootstrap.DataSecretName = "user-data"
		machine.Spec.Node = &v1alpha1.MachineNode{Name: "node-" + name}
	})
	w.until("joined", now, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineJoined })
	return key
}
