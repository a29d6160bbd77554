// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate writes what the charts share with the rest of the repository into their folders. It runs in the
// folder of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/charts"
)

func main() {
	if err := run("charts"); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := charts.Files()
	if err != nil {
		return err
	}
	// What is not made any more must not stay.
	for _, chart := range []string{charts.Management, charts.Tenant} {
		if _, err := os.Stat(filepath.Join(root, chart, "Chart.yaml")); err != nil {
			return fmt.Errorf("generate does not run in the folder of the repository, %w", err)
		}
		if err := os.RemoveAll(filepath.Join(root, chart, charts.Generated)); err != nil {
			return fmt.Errorf("removing what was made before, %w", err)
		}
	}
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making the folder of %s, %w", path, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing %s, %w", path, err)
		}
	}
	return nil
}
