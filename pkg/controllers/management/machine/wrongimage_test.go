// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestWrongImageClaimsNoServer: a server that is taken and given back tells every listener of the inventory, and
// one of them wakes the Machines that wait. A Machine that did so whenever it is looked at would never come to rest.
func TestWrongImageClaimsNoServer(t *testing.T) {
	w := newFixture(t, 1)
	if err := w.client.Delete(t.Context(), &v1alpha1.OSImage{ObjectMeta: metaName(w.osImage)}); err != nil {
		t.Fatal(err)
	}
	key, p := w.machine("m", nil), w.start(w.client)
	p.round()
	if reason := condition(w.get(key), v1alpha1.ConditionReady).Reason; reason != v1alpha1.ReasonInvalidSpec {
		t.Fatalf("reason %q", reason)
	}
	told := 0
	p.inventory.OnChange(func([]string) { told++ })
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if told > 0 {
		t.Errorf("listeners have been told %d times of a change that leaves nothing behind", told)
	}
}
