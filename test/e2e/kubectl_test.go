// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// kubectl get, without -o yaml, shows the whole state on both sides.
func TestKubectlOutput(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	w.createPod(t, "one-gpu", resources("cpu", "4", gpu, "1"))
	w.untilRuns(t, "one-gpu")
	machine := w.machineOf(t, "one-gpu")

	// Karpenter notes that a NodeClaim is ready a moment after its pods run.
	for _, command := range []struct {
		kubeconfig string
		arguments  []string
		rows       [][]string
	}{
		{w.managementKubeconfig, []string{"get", "nodetypes,machines", "--all-namespaces"}, [][]string{
			{"nodetype.karpenter.metal3.io/a100-4x", "metal3-provider", "64", "256Gi", "nvidia.com/gpu=4", "41152", "2", "1", "True"},
			{"machine.karpenter.metal3.io/" + machine.Name, "Joined", "a100-4x", "41152", machine.Status.HostRef.Name, "provisioned", "tenant-a",
				"True"},
		}},
		{w.tenantKubeconfig, []string{"get", "nodepools,nodeclaims,nodes"}, [][]string{
			{"nodepool.karpenter.sh/default", "1", "True"},
			{"nodeclaim.karpenter.sh/" + machine.Name, "a100-4x", "True"},
			{"node/" + machine.Name, "Ready"},
		}},
	} {
		var table string
		w.eventually(t, "kubectl "+strings.Join(command.arguments, " ")+" shows it", func(ctx context.Context) (string, error) {
			table = w.kubectl(ctx, t, command.kubeconfig, command.arguments...)
			for _, row := range command.rows {
				if missing := missingIn(table, row[0], row[1:]...); missing != "" {
					return missing, nil
				}
			}
			return "", nil
		})
		t.Logf("kubectl %s\n%s", strings.Join(command.arguments, " "), table)
	}
}

func (w *fixture) kubectl(ctx context.Context, t *testing.T, kubeconfig string, arguments ...string) string {
	t.Helper()
	output, err := exec.CommandContext(ctx, kubectlPath(t), append([]string{"--kubeconfig", kubeconfig}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s, %v:\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// kubectlPath returns the path of the kubectl in bin, or of the one that is installed.
func kubectlPath(t *testing.T) string {
	t.Helper()
	path, err := binary("kubectl")
	if err != nil {
		installed, missing := exec.LookPath("kubectl")
		if missing != nil {
			t.Fatalf("%v; and there is none in the PATH", err)
		}
		path = installed
	}
	return path
}

// missingIn returns which cell the row of that name lacks, or that there is no such row.
func missingIn(table, name string, cells ...string) string {
	for row := range strings.Lines(table) {
		fields := strings.Fields(row)
		if !slices.Contains(fields, name) {
			continue
		}
		for _, cell := range cells {
			if !slices.Contains(fields, cell) {
				return fmt.Sprintf("the row of %s does not say %q:\n%s", name, cell, row)
			}
		}
		return ""
	}
	return fmt.Sprintf("there is no row for %s in\n%s", name, table)
}
