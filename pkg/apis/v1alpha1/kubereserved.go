// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"slices"
	"strings"
)

// KubeReserved is what the type sets aside for kubelet, as its flag --kube-reserved takes it, in a stable order; empty if
// it sets nothing aside.
func (in *NodeType) KubeReserved() string {
	if in.Spec.Overhead == nil {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(in.Spec.Overhead.KubeReserved)) {
		quantity := in.Spec.Overhead.KubeReserved[name]
		parts = append(parts, string(name)+"="+quantity.String())
	}
	return strings.Join(parts, ",")
}
