// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// TestStandAloneCountsAndIsMoved: a Machine that names no TenantCluster gets a server only where the platform allows it, and then
// within the quota and in the network of the TenantCluster.
func TestStandAloneCountsAndIsMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		policy  v1alpha1.StandAlonePolicy
		quota   int64
		refused string
		message string
	}{
		"ByDefault": {"whose quota and network would it be", "", 3, v1alpha1.ReasonNotAllowed, "no TenantCluster in namespace"},
		"Forbidden": {"it may be said", v1alpha1.StandAloneForbidden, 3, v1alpha1.ReasonNotAllowed, "no TenantCluster in namespace"},
		"NoQuota":   {"it counts", v1alpha1.StandAloneAllowed, 0, v1alpha1.ReasonQuotaExceeded, "spec.quota.servers is 0"},
		"Within":    {"one is within the quota, and one above it", v1alpha1.StandAloneAllowed, 1, v1alpha1.ReasonQuotaExceeded, "has 1 servers"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 3)
			update(w, &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}, func(tenant *v1alpha1.TenantCluster) {
				tenant.Spec.StandAloneMachines, tenant.Spec.Quota = tc.policy, &v1alpha1.Quota{Servers: &tc.quota}
				tenant.Spec.Network = &v1alpha1.TenantNetwork{VLAN: ptr.To(int32(100))}
			})
			keys := []types.NamespacedName{w.machine("a", standAlone), w.machine("b", standAlone)}
			manager := w.start(w.client)
			served, refused := 0, 0
			w.until("decided", func() *process { return manager }, func() bool {
				served, refused = 0, 0
				for _, key := range keys {
					claimed := condition(w.get(key), v1alpha1.ConditionClaimed)
					if claimed.Reason == tc.refused && strings.Contains(claimed.Message, tc.message) {
						refused++
					}
					if w.get(key).Status.ProviderID != "" {
						served++
					}
				}
				return served+refused == len(keys)
			})
			want := 0
			if tc.policy == v1alpha1.StandAloneAllowed {
				want = int(tc.quota)
			}
			if served != want {
				t.Errorf("%s: %d Machines have a server, want %d", tc.reason, served, want)
			}
			for _, key := range keys {
				machine := w.get(key)
				if ready := condition(machine, v1alpha1.ConditionReady); machine.Status.ProviderID != "" &&
					(ready.Reason != v1alpha1.ReasonWaitingForHook || !strings.Contains(ready.Message, v1alpha1.NetworkHook)) {
					t.Errorf("a server is not moved into the network: %+v", ready)
				}
			}
		})
	}
}

// TestStandAloneWithoutTenants: where there is no TenantCluster, the label of the namespace decides. A Machine that has a server keeps
// it without the label, and releases it.
func TestStandAloneWithoutTenants(t *testing.T) {
	w := newFixture(t, 2)
	if err := w.client.Delete(t.Context(), &v1alpha1.TenantCluster{ObjectMeta: metaIn(w.tenant, "tenant")}); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metaName(w.tenant)}
	label := func(labels map[string]string) {
		t.Helper()
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace)
		if namespace.Labels = labels; err == nil {
			err = w.client.Update(t.Context(), namespace)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first, manager := w.machine("first", standAlone), w.start(w.client)
	running := func() *process { return manager }
	isRefused := func(key types.NamespacedName) func() bool {
		return func() bool {
			claimed := condition(w.get(key), v1alpha1.ConditionClaimed)
			return claimed.Reason == v1alpha1.ReasonNotAllowed && strings.Contains(claimed.Message, v1alpha1.StandAloneMachinesLabelKey) &&
				w.get(key).Status.HostRef == nil
		}
	}
	w.until("refused", running, isRefused(first))
	label(map[string]string{v1alpha1.StandAloneMachinesLabelKey: "yes"})
	w.until("refused for the value of the label", running, isRefused(first))
	label(map[string]string{v1alpha1.StandAloneMachinesLabelKey: v1alpha1.StandAloneMachinesLabelValue})
	w.until("provisioned", running, func() bool { return w.get(first).Status.Phase == v1alpha1.MachineProvisioned })
	label(nil)
	second := w.machine("second", standAlone)
	w.until("refused again", running, isRefused(second))
	if w.get(first).Status.Phase != v1alpha1.MachineProvisioned {
		t.Errorf("a Machine has lost its server with the label: %+v", w.get(first).Status)
	}
	for _, key := range []types.NamespacedName{first, second} {
		if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
			t.Fatal(err)
		}
	}
	w.until("gone", running, func() bool { return w.get(first) == nil && w.get(second) == nil })
	w.checkNothingLeft()
}
