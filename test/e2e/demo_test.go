// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The scenario of the README, as a user runs it: it succeeds, tells the story, and leaves nothing running.
func TestDemo(t *testing.T) {
	if os.Getenv(managementVariable) != "" {
		t.Skip("the demo brings its own clusters")
	}
	path, err := binary("sandbox")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "demo")
	output, err := exec.CommandContext(t.Context(), path, "demo", "--dir", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("sandbox demo failed, %v:\n%s", err, output)
	}
	for _, row := range [][]string{
		{"train-8-gpus", "8 nvidia.com/gpu", "h100-8x", "82610", "the only one that fits"},
		{"infer-1-gpu", "1 nvidia.com/gpu", "a100-4x", "41190", "a100-4x 41190 < h100-8x 82610"},
		{"web-no-gpu", "4 cpu", "cpu", "595", "the only one that fits", "server-05"},
	} {
		found := false
		for line := range strings.Lines(string(output)) {
			found = found || containsAll(line, row...) == ""
		}
		if !found {
			t.Errorf("the closing table has no row with %q:\n%s", row, output)
		}
	}
	pidFiles, err := filepath.Glob(filepath.Join(dir, "run", "*.pid"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range pidFiles {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if pid, err := strconv.Atoi(strings.TrimSpace(string(content))); err == nil && syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d of %s still runs after the demo", pid, file)
		}
	}
}
