// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestStandAloneInATenantsNamespace: a tenant's provider may make Machines of any shape in its namespace. One that names
// no tenant must not get what no tenant of that namespace may have.
func TestStandAloneInATenantsNamespace(t *testing.T) {
	w := newFixture(t, 1)
	w.allow()
	key, manager := w.machine("m", standAlone), w.start(w.client)
	manager.round()
	if machine := w.get(key); machine.Status.HostRef != nil ||
		condition(machine, v1alpha1.ConditionClaimed).Reason != v1alpha1.ReasonNotAllowed {
		t.Errorf("a type that the tenant may not have: %+v", machine.Status)
	}
	w.allow(w.nodeType)
	w.until("claimed", func() *process { return manager }, func() bool { return w.get(key).Status.ProviderID != "" })
}
