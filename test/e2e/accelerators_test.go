// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// Accelerators go by the names that their device plugins give them: a slice of a partitioned GPU and a GPU of another
// vendor are asked for, and found, as nvidia.com/gpu is.
func TestAcceleratorsByName(t *testing.T) {
	system.Only(t)
	w := enterAlone(t, otherNames)
	w.createPool(t, "mig", 1, resources("cpu", "16", "memory", "64Gi", "nvidia.com/mig-1g.10gb", "7"), nil)
	w.createPool(t, "amd", 1, resources("cpu", "16", "memory", "64Gi", "amd.com/gpu", "4"), nil)
	w.createPod(t, "slice", resources("cpu", "1", "nvidia.com/mig-1g.10gb", "2"))
	w.createPod(t, "rocm", resources("cpu", "1", "amd.com/gpu", "1"))
	w.createPod(t, "other-slice", resources("cpu", "1", "nvidia.com/mig-3g.40gb", "1"))
	for pod, want := range map[string]string{"slice": "mig", "rocm": "amd"} {
		w.untilRuns(t, pod)
		if got := w.machineOf(t, pod).Status.HostRef.Name; got != want {
			t.Errorf("pod %s got server %s, want %s", pod, got, want)
		}
	}
	w.eventually(t, "an event on pod other-slice says that no server has what it asks for",
		w.podHasEvent("other-slice", "no NodeType fits", "mig: has no nvidia.com/mig-3g.40gb"))
	if claimed := w.claimedHosts(t.Context(), t); len(claimed) != 2 {
		t.Errorf("claimed servers are %v, want mig and amd", claimed)
	}
}
