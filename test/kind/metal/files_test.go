// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/inventory"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/fleet"
)

const servers = `
apiVersion: sandbox.karpenter.metal3.io/v1alpha1
kind: Fleet
servers:
- {name: gpu, labels: {gpu-model: h100}, capacity: {cpu: 96, memory: 768Gi, nvidia.com/gpu: 2}}
- {name: arm, architecture: arm64, capacity: {cpu: 8, memory: 32Gi, nvidia.com/mig-1g.10gb: 1}}
`

func parsed(t *testing.T) []fleet.Server {
	t.Helper()
	list, err := fleet.Parse("servers", []byte(servers))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The rack reads the scenario that is written, and servers find their hardware.
func TestWrite(t *testing.T) {
	c := Config{Dir: filepath.Join(t.TempDir(), "metal"), Kubeconfig: []byte("kubeconfig"), Servers: parsed(t)}
	if err := os.MkdirAll(filepath.Join(c.rackDir(), "inventory", "gone"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := c.write(); err != nil {
		t.Fatal(err)
	}
	rack, err := scenario.Load(filepath.Join(c.rackDir(), "rack.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	gpu, arm := rack.Servers[0].Hardware, rack.Servers[1].Hardware
	if gpu.MemoryGiB != 768 || gpu.Processors[0].Cores != 96 || len(gpu.GPUs) != 1 || gpu.GPUs[0].Count != 2 || gpu.GPUs[0].Model != "h100" {
		t.Errorf("the hardware of server gpu is %+v", gpu)
	}
	if arm.Processors[0].Architecture != inventory.AArch64 || len(arm.GPUs) != 0 {
		t.Errorf("the hardware of server arm is %+v", arm)
	}
	if rack.Servers[0].BMC == rack.Servers[1].BMC {
		t.Error("two servers have the same credentials")
	}
	for file, want := range map[string]any{
		"gpu/devices.json":  map[string]any{"nvidia.com/gpu": []any{"GPU-gpu-0", "GPU-gpu-1"}},
		"gpu/hardware.json": map[string]any{"cpus": 96.0, "memoryMiB": 768.0 * 1024},
		"arm/devices.json":  map[string]any{"nvidia.com/mig-1g.10gb": []any{"MIG-1G.10GB-arm-0"}},
	} {
		content, err := os.ReadFile(filepath.Join(c.rackDir(), "inventory", file))
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(content, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
	if _, err := os.Stat(filepath.Join(c.rackDir(), "inventory", "gone")); err == nil {
		t.Error("the files of a server of an earlier run are left")
	}
	if output, err := exec.CommandContext(t.Context(), "sh", "-n", filepath.Join(c.rackDir(), "boot")).CombinedOutput(); err != nil {
		t.Errorf("the boot command is no script: %v: %s", err, output)
	}
}

func TestMissing(t *testing.T) {
	err := Missing(t.TempDir())
	if err == nil {
		t.Fatal("an empty directory passes the check")
	}
	for _, part := range []string{"run `make ironic`", "run `make server-image`", "program metal-host is missing", "program rack is missing"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error lacks %q:\n%v", part, err)
		}
	}
}
