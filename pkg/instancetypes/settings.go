// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"fmt"

	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// DefaultPods is how many pods a node takes if its NodeType does not say so: kubelet's own default.
const DefaultPods = 110

// Settings are what instance types depend on besides the NodeType.
type Settings struct {
	// CapacityType of all offerings: reserved, which lets Karpenter count how many servers there are, or on-demand,
	// for NodePools that allow nothing else.
	CapacityType string
	// Pods is how many pods a node takes whose NodeType has no resource "pods".
	Pods int64
}

// DefaultSettings are reserved capacity and kubelet's number of pods.
func DefaultSettings() Settings {
	return Settings{CapacityType: karpenterv1.CapacityTypeReserved, Pods: DefaultPods}
}

// Validate returns one sentence that names the setting that is wrong.
func (s Settings) Validate() error {
	if s.CapacityType != karpenterv1.CapacityTypeReserved && s.CapacityType != karpenterv1.CapacityTypeOnDemand {
		return fmt.Errorf("capacity type %q is unknown: use %s or %s", s.CapacityType, karpenterv1.CapacityTypeReserved,
			karpenterv1.CapacityTypeOnDemand)
	}
	if s.Pods <= 0 {
		return fmt.Errorf("the number of pods of a node is %d: it must be greater than zero", s.Pods)
	}
	return nil
}

// Reserved returns whether offerings count servers.
func (s Settings) Reserved() bool { return s.CapacityType == karpenterv1.CapacityTypeReserved }
