// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Command generate writes what the charts share with the rest of the repository into their folders. It runs in the
// folder of the repository, or writes for one that is given: a copy to compare with.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/charts"
)

func main() {
	root := "charts"
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := run(root); err != nil {
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
			return fmt.Errorf("%s is not a folder with the charts, %w", root, err)
		}
		if err := os.RemoveAll(filepath.Join(root, chart, charts.Generated)); err != nil {
			return fmt.Errorf("removing what was made before, %w", err)
		}
	}
	for _, chart := range []string{charts.Management, charts.Tenant} {
		metadata, err := os.ReadFile(filepath.Join(root, chart, "Chart.yaml"))
		if err != nil {
			return err
		}
		values, err := os.ReadFile(filepath.Join(root, chart, "values.yaml"))
		if err != nil {
			return err
		}
		if files[chart+"/Chart.yaml"], err = charts.Metadata(chart, metadata, values); err != nil {
			return err
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
