// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestClaimedMachinesSleep: a Machine that has its server and waits for user data has watches of its own for that. Were
// it woken with those that wait for a server, every claim in a burst would wake all that came before it.
func TestClaimedMachinesSleep(t *testing.T) {
	w := newWorld(t, 2)
	tenants, standAlones := w.machine("m", nil), w.machine("n", func(machine *v1alpha1.Machine) {
		standAlone(machine)
		machine.Spec.Bootstrap.DataSecretName = "later"
	})
	manager := w.start(w.client)
	manager.round()
	for _, key := range []types.NamespacedName{tenants, standAlones} {
		if reason := condition(w.get(key), v1alpha1.ConditionReady).Reason; reason != v1alpha1.ReasonWaitingForBootstrapData {
			t.Fatalf("Machine %s: reason %q", key, reason)
		}
	}
	if waiting := manager.waiting.waiters(); len(waiting) > 0 {
		t.Errorf("woken by every change of any server: %v", waiting)
	}
}
