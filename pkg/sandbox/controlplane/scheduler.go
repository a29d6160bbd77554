// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"path/filepath"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/packing"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/sandbox/pki"
)

// schedulerArgs are the arguments of the scheduler. One that packs is told so by a file, which it reads instead of most
// of its flags.
func (c *Cluster) schedulerArgs() ([]string, error) {
	args := []string{"--leader-elect=false", "--secure-port=0", "--profiling=false"}
	if len(c.config.Packed) == 0 {
		return append(args, "--kubeconfig="+c.files.scheduler), nil
	}
	settings := packing.DefaultSettings()
	settings.Resources, settings.Kubeconfig = c.config.Packed, c.files.scheduler
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	content, err := packing.YAML(packing.Configuration(settings))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(c.config.Dir, "scheduler.yaml")
	if err := pki.WriteFile(file, content); err != nil {
		return nil, err
	}
	return append(args, "--config="+file), nil
}
