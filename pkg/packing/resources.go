// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package packing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// With returns the resources and the accelerators that one of the lists has at least one of, sorted.
func With(resources []corev1.ResourceName, of ...corev1.ResourceList) []corev1.ResourceName {
	result := slices.Clone(resources)
	for _, list := range of {
		result = append(result, v1alpha1.Accelerators(list)...)
	}
	slices.Sort(result)
	return slices.Compact(result)
}
