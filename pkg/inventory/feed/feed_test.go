// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
)

func TestRemove(t *testing.T) {
	gone := env.AvailableHost("metal3", "h1", nil)
	for name, tc := range map[string]struct {
		reason  string
		deleted any
	}{
		"Seen": {"the watch has shown the deletion", gone},
		"Missed": {"the watch was interrupted, and the last state is known",
			toolscache.DeletedFinalStateUnknown{Key: "metal3/h1", Obj: gone}},
		"MissedAltogether": {"not even the last state is known", toolscache.DeletedFinalStateUnknown{Key: "metal3/h1"}},
	} {
		t.Run(name, func(t *testing.T) {
			hosts := inventory.NewInventory(inventory.Options{})
			hosts.SetType(inventory.Profile{Name: "any", Namespace: "metal3", Selector: labels.Everything()})
			hosts.SetHost(env.AvailableHost("metal3", "h1", nil))
			hosts.SetHost(env.AvailableHost("metal3", "h2", nil))
			handlerOf(hosts).OnDelete(tc.deleted)
			if summary, _ := hosts.Summary("any"); summary.Capacity.Total != 1 {
				t.Errorf("%s: %d hosts are left, want 1", tc.reason, summary.Capacity.Total)
			}
		})
	}
}
