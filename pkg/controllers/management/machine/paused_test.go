// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestPausedOrphan: hosts are paused while a management cluster is moved or restored, and for a while their Machines
// are not there, or are there with another UID. The fleet must not be reinstalled for that.
func TestPausedOrphan(t *testing.T) {
	w := newFixture(t, 1)
	key, manager := w.machine("m", standAlone), w.start(w.client)
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	pause := func(change func(map[string]string)) {
		host := w.hosts()[0]
		before := host.DeepCopy()
		if host.Annotations == nil {
			host.Annotations = map[string]string{}
		}
		change(host.Annotations)
		if err := w.client.Patch(t.Context(), &host, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	pause(func(annotations map[string]string) { annotations[bmov1alpha1.PausedAnnotation] = "" })
	w.edit(key, func(machine *v1alpha1.Machine) { machine.Finalizers = nil })
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	manager.round()
	if host := w.hosts()[0]; host.Spec.Image == nil || !host.Spec.Online || host.Spec.ConsumerRef == nil {
		t.Errorf("image %v, online %v, consumer %v", host.Spec.Image, host.Spec.Online, host.Spec.ConsumerRef)
	}
	pause(func(annotations map[string]string) { delete(annotations, bmov1alpha1.PausedAnnotation) })
	w.until("released", func() *process { return manager }, func() bool { return w.hosts()[0].Spec.ConsumerRef == nil })
	w.checkNothingLeft()
}
