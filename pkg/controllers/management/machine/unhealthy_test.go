// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
)

// reportFault reports that the node of a Machine is to be replaced, because of a GPU.
func reportFault(node *v1alpha1.MachineNode) {
	node.Unhealthy = &v1alpha1.UnhealthyNode{
		Condition: "GpuMemWatch", Status: corev1.ConditionTrue, Since: metav1.NewTime(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)),
		Message: "GPU 3",
	}
}

// TestUnhealthy: a server whose node was replaced as unhealthy is cleaned and quarantined until an operator removes the
// annotation.
func TestUnhealthy(t *testing.T) {
	w := newFixture(t, 1)
	key := w.machine("m", standAlone)
	p := w.start(w.client)
	w.until("installed", func() *process { return p }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	w.edit(key, func(machine *v1alpha1.Machine) {
		machine.ReportNode(reportFault)
	})
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	w.until("gone", func() *process { return p }, func() bool { return w.get(key) == nil })
	host := w.hosts()[0]
	quarantine, ours := inventory.QuarantineOf(&host)
	if !ours || quarantine.Reason != v1alpha1.ReasonNodeUnhealthy || quarantine.Machine != key ||
		quarantine.Message != "GpuMemWatch is True since 2026-11-22T12:00:00Z: GPU 3" {
		t.Errorf("the server is quarantined with %q", host.Annotations[v1alpha1.QuarantinedAnnotationKey])
	}
	if host.Spec.ConsumerRef != nil || host.Spec.Image != nil {
		t.Errorf("the server has not been given back: consumer %v, image %v", host.Spec.ConsumerRef, host.Spec.Image)
	}
	if !p.reported("GpuMemWatch is True since 2026-11-22T12:00:00Z: GPU 3") {
		t.Error("no event says why")
	}
	next := w.machine("n", standAlone)
	p.round()
	p.round()
	if got := condition(w.get(next), v1alpha1.ConditionReady); got.Reason != v1alpha1.ReasonNoCapacity {
		t.Errorf("the next Machine is %s: %s; want none to get the server", got.Reason, got.Message)
	}
	before := host.DeepCopy()
	delete(host.Annotations, v1alpha1.QuarantinedAnnotationKey)
	if err := w.client.Patch(t.Context(), &host, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.until("claimed once the annotation is removed", func() *process { return p },
		func() bool { return w.get(next).Status.ProviderID != "" })
}
