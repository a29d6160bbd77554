// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/packing"
)

// packed are the resources that the tenant's scheduler packs: the usual accelerators, and those of the fleet.
func (c *Config) packed() []corev1.ResourceName {
	if c.SpreadPods {
		return nil
	}
	resources := packing.DefaultResources()
	for _, server := range c.Fleet {
		resources = packing.With(resources, server.Capacity)
	}
	return resources
}
