// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// kubectl finds the plugin in the PATH, and it says what the clusters say: of a pod that runs, of one that never can, and of the servers.
func TestPlugin(t *testing.T) {
	system.Only(t)
	w := enter(t, reference)
	w.createPod(t, "one-gpu", resources("cpu", "4", gpu, "1"))
	w.createPod(t, "sixteen-gpus", resources("cpu", "4", gpu, "16"))
	w.untilRuns(t, "one-gpu")
	machine := w.machineOf(t, "one-gpu")

	for _, tc := range []struct {
		arguments []string
		code      int
		want      []string
	}{
		{[]string{"explain", "pod", w.group.namespace + "/one-gpu"}, 0,
			[]string{"is Running on node " + machine.Name, "Machine tenant-a/" + machine.Name + " is Joined"}},
		{[]string{"explain", "pod", w.group.namespace + "/sixteen-gpus"}, 1,
			[]string{"no NodeType fits", "a100-4x: too small: asks nvidia.com/gpu 16, has 4"}},
		{[]string{"explain", "host", machine.Status.HostRef.Name}, 0, []string{"is Joined, as Machine tenant-a/" + machine.Name}},
		{[]string{"hosts", "--state", "joined", "-o", "name"}, 0, []string{"baremetalhost.metal3.io/" + machine.Status.HostRef.Name}},
		{[]string{"machines"}, 0, []string{machine.Name}},
		{[]string{"capacity"}, 0, []string{"a100-4x", "tenant-a/tenant-a"}},
		{[]string{"timeline", "machine", machine.Name}, 0, []string{"from the claim to the node"}},
		{[]string{"report", "--from", "1h"}, 0, []string{"tenant-a/tenant-a"}},
	} {
		w.eventually(t, "kubectl metal3 "+strings.Join(tc.arguments, " ")+" says it", func(ctx context.Context) (string, error) {
			output, code, err := w.plugin(ctx, t, tc.arguments...)
			if err != nil {
				return "", err
			}
			for _, text := range tc.want {
				if !strings.Contains(output, text) {
					return "it does not say " + text + ":\n" + output, nil
				}
			}
			if code != tc.code {
				t.Errorf("kubectl metal3 %s ended with %d, want %d", strings.Join(tc.arguments, " "), code, tc.code)
			}
			t.Logf("kubectl metal3 %s\n%s", strings.Join(tc.arguments, " "), output)
			return "", nil
		})
	}
}

// plugin runs kubectl metal3 on both clusters, and returns its exit code.
func (w *fixture) plugin(ctx context.Context, t *testing.T, arguments ...string) (output string, code int, err error) {
	t.Helper()
	path, err := binary("kubectl-metal3")
	if err != nil {
		return "", 0, err
	}
	arguments = append([]string{"metal3", "--kubeconfig", w.managementKubeconfig, "--tenant-kubeconfig", w.tenantKubeconfig}, arguments...)
	command := exec.CommandContext(ctx, kubectlPath(t), arguments...)
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(path)+string(os.PathListSeparator)+os.Getenv("PATH"))
	content, err := command.CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return string(content), ended.ExitCode(), nil
	}
	return string(content), 0, err
}
