// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestTooSmall: where inspection has found less than the type says, the Machine waits and says what is missing, and gets the
// server once that is there.
func TestTooSmall(t *testing.T) {
	w := newFixture(t, 1)
	w.host("server-00", func(host *bmov1alpha1.BareMetalHost) {
		host.Status.HardwareDetails.CPU.Count, host.Status.HardwareDetails.RAMMebibytes = 8, 16<<10
	})
	key := w.machine("m", standAlone)
	manager := w.start(w.client)
	manager.round()
	machine := w.get(key)
	claimed := condition(machine, v1alpha1.ConditionClaimed)
	want := fmt.Sprintf("no server available: %s: 1 server matches, 0 claimed, 0 in error, 1 too small: %s/server-00 (memory 16Gi of 32Gi)",
		w.nodeType, w.metal3)
	if diff := cmp.Diff([]any{v1alpha1.ReasonNoCapacity, want, v1alpha1.MachinePending},
		[]any{claimed.Reason, claimed.Message, machine.Status.Phase}); diff != "" {
		t.Errorf("the user is not told what is missing (-want +got):\n%s", diff)
	}
	if host := w.hosts()[0]; machine.Status.HostRef != nil || host.Spec.ConsumerRef != nil {
		t.Errorf("a server that is too small was claimed: %v, %v", machine.Status.HostRef, host.Spec.ConsumerRef)
	}
	w.host("server-00", func(host *bmov1alpha1.BareMetalHost) { host.Status.HardwareDetails.RAMMebibytes = 32 << 10 })
	w.until("provisioned", func() *process { return manager }, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
}
