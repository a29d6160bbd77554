// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/boot"
)

func TestServerHardware(t *testing.T) {
	o := Options{Server: boot.Server{Dir: t.TempDir()}}
	if mounts, err := overrideHardware(o); err != nil || mounts != nil {
		t.Errorf("without hardware.json there are the mounts %v, %v; want none", mounts, err)
	}
	if err := os.WriteFile(o.hardware(), []byte(`{"cpus": 3, "memoryMiB": 2048}`), 0o600); err != nil {
		t.Fatal(err)
	}
	mounts, err := overrideHardware(o)
	if err != nil || len(mounts) != 3 {
		t.Fatalf("mounts are %v, %v", mounts, err)
	}
	for file, want := range map[string]string{
		"meminfo": "MemTotal: 2097152 kB\n", "cpu/online": "0-2\n",
	} {
		content, err := os.ReadFile(o.run("hardware", file))
		if err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s has %q, %v; want %q", file, content, err, want)
		}
	}
	if cpus, err := filepath.Glob(o.run("hardware/cpu/cpu*")); err != nil || len(cpus) != 3 {
		t.Errorf("there are the processors %v, %v; want three", cpus, err)
	}
	if err := os.WriteFile(o.hardware(), []byte(`{"cpus": 3}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := overrideHardware(o); err == nil || !strings.Contains(err.Error(), "memoryMiB") {
		t.Errorf("hardware without memory gives %v, want an error with an example", err)
	}
}
