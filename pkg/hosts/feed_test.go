// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestFeedTakesEveryKindOfDeletion(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		deleted any
	}{
		"Seen":             {"the watch has shown it", available("h1", nil)},
		"Missed":           {"the watch was interrupted, and the last state is known", toolscache.DeletedFinalStateUnknown{Key: "metal3/h1", Obj: available("h1", nil)}},
		"MissedAltogether": {"not even the last state is known", toolscache.DeletedFinalStateUnknown{Key: "metal3/h1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := rack()
			(&Feed{inventory: inventory}).remove(tc.deleted)
			if summary, _ := inventory.Summary("h100-8x"); summary.Capacity.Total != 1 {
				t.Errorf("%s: %d hosts are left, want 1", tc.reason, summary.Capacity.Total)
			}
		})
	}
}

func TestSyncedOnceHostsAndTypesAre(t *testing.T) {
	inventory := rack()
	var told [][]string
	inventory.OnChange(func(names []string) { told = append(told, names) })
	inventory.MarkTypesSynced()
	inventory.MarkTypesSynced()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := inventory.WaitForSync(ended); err == nil || inventory.Synced() {
		t.Error("synced with the types alone: hosts that are not known yet would count as none")
	}
	inventory.MarkHostsSynced()
	if err := inventory.WaitForSync(t.Context()); err != nil || !inventory.Synced() {
		t.Errorf("not synced with both: %v", err)
	}
	if diff := cmp.Diff([][]string{{"a100-4x", "cpu", "h100-8x"}}, told); diff != "" {
		t.Errorf("whoever has waited for this is woken once (-want +got):\n%s", diff)
	}
}
