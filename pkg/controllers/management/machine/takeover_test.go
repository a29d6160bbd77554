// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestTakeOver: a provider of the version before reports to this manager in annotations.
func TestTakeOver(t *testing.T) {
	w := newFixture(t, 1)
	w.userData("user-data")
	key := w.machine("m", func(machine *v1alpha1.Machine) { machine.Spec.Bootstrap.DataSecretName = "user-data" })
	running := w.start(w.client)
	now := func() *process { return running }
	w.until("provisioned", now, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	w.edit(key, func(machine *v1alpha1.Machine) {
		annotate(machine, v1alpha1.Group+"/kubernetes-version", "v1.36")
		annotate(machine, v1alpha1.Group+"/node-name", "gpu-1")
	})
	w.until("joined", now, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineJoined })
	if node, name := w.get(key).ReportedNode(), w.get(key).Status.NodeName; node.Name != "gpu-1" || node.KubernetesVersion != "v1.36" ||
		name != "gpu-1" {
		t.Errorf("spec.node is %+v, and status.nodeName %q", node, name)
	}
	w.edit(key, func(machine *v1alpha1.Machine) {
		annotate(machine, v1alpha1.Group+"/unhealthy", "GpuMemWatch is True since 2026-11-22T12:00:00Z: GPU 3")
	})
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	w.until("gone", now, func() bool { return w.get(key) == nil })
	if host := w.hosts()[0]; host.Annotations[v1alpha1.QuarantinedAnnotationKey] == "" {
		t.Error("the server of an unhealthy node is not quarantined")
	}
}
