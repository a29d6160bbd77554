// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// kubectl get, without -o yaml, tells the whole story on both sides.
func TestKubectlTellsTheStory(t *testing.T) {
	w := enter(t)
	w.createPod(t, "one-gpu", resources("cpu", "4", gpu, "1"))
	w.eventually(t, "the pod runs", w.runs("one-gpu"))
	machine := w.machineOf(t, "one-gpu")

	management := w.kubectl(t, w.managementKubeconfig, "get", "nodetypes,machines", "--all-namespaces")
	w.expectRow(t, management, "nodetype.karpenter.metal3.io/a100-4x", "metal3-provider", "64", "256Gi", "nvidia.com/gpu=4", "41190", "2", "1", "True")
	w.expectRow(t, management, "machine.karpenter.metal3.io/"+machine.Name, "Joined", "a100-4x", "41190", machine.Status.HostRef.Name, "provisioned", "tenant-a", "True")

	tenant := w.kubectl(t, w.tenantKubeconfig, "get", "nodepools,nodeclaims,nodes")
	w.expectRow(t, tenant, "nodepool.karpenter.sh/default", "1", "True")
	w.expectRow(t, tenant, "nodeclaim.karpenter.sh/"+machine.Name, "a100-4x", "True")
	w.expectRow(t, tenant, "node/"+machine.Status.NodeName, "Ready")
}

func (w *world) kubectl(t *testing.T, kubeconfig string, arguments ...string) string {
	t.Helper()
	path, err := binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", kubeconfig}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s, %v:\n%s", strings.Join(arguments, " "), err, output)
	}
	t.Logf("kubectl %s\n%s", strings.Join(arguments, " "), output)
	return string(output)
}

// expectRow fails unless the table has a row that holds the name and all the cells.
func (w *world) expectRow(t *testing.T, table, name string, cells ...string) {
	t.Helper()
	for row := range strings.Lines(table) {
		fields := strings.Fields(row)
		if !strings.Contains(row, name) {
			continue
		}
		for _, cell := range cells {
			found := false
			for _, field := range fields {
				found = found || field == cell
			}
			if !found {
				t.Errorf("the row of %s does not say %q:\n%s", name, cell, row)
			}
		}
		return
	}
	t.Errorf("there is no row for %s in\n%s", name, table)
}
