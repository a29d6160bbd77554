// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// A tenant gets no more servers than its quota, however many Machines ask, and the rest when the quota is raised.
func TestTenantQuota(t *testing.T) {
	w := newWorld(t, 5)
	setQuota := func(servers int64) {
		t.Helper()
		tenant := &v1alpha1.TenantCluster{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.tenant, Name: "tenant"}, tenant); err != nil {
			t.Fatal(err)
		}
		tenant.Spec.Quota = &v1alpha1.Quota{Servers: ptr.To(servers)}
		if err := w.client.Update(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	claimed := func() (count int) {
		for _, host := range w.hosts() {
			if host.Spec.ConsumerRef != nil {
				count++
			}
		}
		return count
	}
	refused := func() (count int) {
		for _, machine := range w.machines() {
			if condition(&machine, v1alpha1.ConditionClaimed).Reason == v1alpha1.ReasonQuotaExceeded && machine.Status.HostRef == nil {
				count++
			}
		}
		return count
	}
	setQuota(2)
	for n := range 4 {
		w.machine(fmt.Sprintf("m-%d", n), nil)
	}
	manager := w.start(w.client)
	running := func() *process { return manager }
	w.until("two claimed and two refused", running, func() bool { return claimed() == 2 && refused() == 2 })
	setQuota(4)
	w.until("all claimed", running, func() bool { return claimed() == 4 && refused() == 0 })
}
