// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/controllers/management/hosts"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// network gives the tenant a network of its own.
func (w *fixture) network() {
	w.t.Helper()
	tenant := &v1alpha1.TenantCluster{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.tenant, Name: "tenant"}, tenant); err != nil {
		w.t.Fatal(err)
	}
	tenant.Spec.Network = &v1alpha1.TenantNetwork{VLAN: ptr.To[int32](100)}
	if err := w.client.Update(w.t.Context(), tenant); err != nil {
		w.t.Fatal(err)
	}
}

// takeHook is what a network controller does when the server has been moved.
func (w *fixture) takeHook(key types.NamespacedName, prefix string) {
	w.t.Helper()
	hook := v1alpha1.HookKey(prefix, v1alpha1.NetworkHook)
	for _, host := range w.hosts() {
		if consumer, ok := hosts.ConsumerOf(&host); ok && consumer.NamespacedName == key {
			w.annotateHost(host.Name, hook, "")
		}
	}
	w.edit(key, func(machine *v1alpha1.Machine) { delete(machine.Annotations, hook) })
}

func waitsForHook(machine *v1alpha1.Machine) bool {
	network := condition(machine, v1alpha1.ConditionNetworkReady)
	return network.Status == metav1.ConditionFalse && network.Reason == v1alpha1.ReasonWaitingForHook
}

// TestTenantNetwork: nothing is installed on a server before it is in its tenant's network, and no other Machine claims
// it before it has left that network. Its disks are erased outside of that network.
func TestTenantNetwork(t *testing.T) {
	w := newFixture(t, 1)
	w.network()
	key := w.machine("m", func(machine *v1alpha1.Machine) {
		machine.Annotations = map[string]string{
			v1alpha1.HookKey(v1alpha1.HookMessagePrefix, v1alpha1.NetworkHook): "the switch does not answer",
		}
		machine.Spec.Bootstrap.DataSecretName, machine.Spec.Node = "user-data", &v1alpha1.MachineNode{Name: "node"}
	})
	w.userData("user-data")
	manager := w.start(w.client)
	running := func() *process { return manager }

	w.until("held", running, func() bool { return waitsForHook(w.get(key)) })
	manager.round()
	machine := w.get(key)
	if host := w.hosts()[0]; host.Spec.Image != nil || condition(machine, v1alpha1.ConditionClaimed).Status != metav1.ConditionTrue {
		t.Errorf("image %v, Claimed %+v: want a server that is claimed and empty", host.Spec.Image, condition(machine, v1alpha1.ConditionClaimed))
	}
	if message := condition(machine, v1alpha1.ConditionNetworkReady).Message; !strings.Contains(message, "the switch does not answer") {
		t.Errorf("message %q does not say what the owner of the hook has to say", message)
	}
	if got := machine.Annotations[v1alpha1.HookKey(v1alpha1.PreProvisionHookPrefix, v1alpha1.NetworkHook)]; got != "vlan:100" {
		t.Errorf("the hook says %q, want the network", got)
	}

	w.takeHook(key, v1alpha1.PreProvisionHookPrefix)
	w.until("joined", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineJoined })
	if got := condition(w.get(key), v1alpha1.ConditionNetworkReady); got.Status != metav1.ConditionTrue {
		t.Errorf("NetworkReady is %+v", got)
	}

	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	w.until("held before its return", running, func() bool { return waitsForHook(w.get(key)) })
	w.rounds(manager)
	if host := w.hosts()[0]; !inventory.IsOff(&host) || inventory.EligibilityOf(&host).Claimable {
		t.Errorf("consumer %v, image %v: want a server that is off, with its image on, and cannot be claimed", host.Spec.ConsumerRef,
			host.Spec.Image)
	}
	message := condition(w.get(key), v1alpha1.ConditionReleased).Message
	if !strings.Contains(message, "stays switched off, and is not cleaned") {
		t.Errorf("the Machine does not say what it waits for: %q", message)
	}
	w.takeHook(key, v1alpha1.PreReturnHookPrefix)
	w.until("being cleaned", running, func() bool { return w.hosts()[0].Status.Provisioning.State == bmov1alpha1.StateDeprovisioning })
	if got := condition(w.get(key), v1alpha1.ConditionNetworkReady); got.Status != metav1.ConditionTrue {
		t.Errorf("it has left the network, and NetworkReady is %+v", got)
	}
	w.until("gone", running, func() bool { return w.get(key) == nil })
	w.checkNothingLeft()
}

// TestHooksAfterForcedDeletion: a Machine that is deleted by force takes its hooks with it, and the server is
// still in the network of the tenant.
func TestHooksAfterForcedDeletion(t *testing.T) {
	w := newFixture(t, 1)
	w.network()
	key := w.machine("m", nil)
	manager := w.start(w.client)
	w.until("held", func() *process { return manager }, func() bool { return waitsForHook(w.get(key)) })
	w.takeHook(key, v1alpha1.PreProvisionHookPrefix)
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	manager = w.start(w.client)
	for range 5 {
		manager.round()
		w.playMetal3()
	}
	host := w.hosts()[0]
	if inventory.EligibilityOf(&host).Claimable {
		t.Fatal("the next tenant can claim a server that is in the network of the last")
	}
	before := host.DeepCopy()
	delete(host.Annotations, v1alpha1.HookKey(v1alpha1.PreReturnHookPrefix, v1alpha1.NetworkHook))
	if err := w.client.Patch(t.Context(), &host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.until("back in the pool", func() *process { return manager }, func() bool { return w.hosts()[0].Spec.ConsumerRef == nil })
	w.checkNothingLeft()
}

// TestNoHooks: without a network controller, Machines do not wait for one.
func TestNoHooks(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", standAlone)
	manager := w.start(w.client)
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	if got := condition(w.get(key), v1alpha1.ConditionNetworkReady); got.Type != "" {
		t.Errorf("NetworkReady is %+v, want no such condition", got)
	}
}
