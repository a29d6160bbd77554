// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/sandbox/controlplane"
)

// waitTimeout bounds each wait. It is long, because a test machine may be busy.
const waitTimeout = 90 * time.Second

func await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	return controlplane.Await(ctx, what, check)
}

// root is the nearest directory above the working directory that holds go.mod: tests run in the folder of their package.
func root() string {
	directory := "."
	for range 10 {
		if _, err := os.Stat(filepath.Join(directory, "go.mod")); err == nil {
			return directory
		}
		directory = filepath.Join(directory, "..")
	}
	return "."
}
