// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
		t.Errorf("listeners are notified once (-want +got):\n%s", diff)
	}
}
