// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// ForTenant returns a class of the host as the tenant sees it.
func (p Policy) ForTenant(class *resourcev1.DeviceClass) *resourcev1.DeviceClass {
	visible := &resourcev1.DeviceClass{Spec: *class.Spec.DeepCopy()}
	visible.Name = class.Name
	if !p.Hides(v1alpha1.DeviceClassLabels) {
		visible.Labels = maps.Clone(class.Labels)
	}
	if !p.Hides(v1alpha1.DeviceClassAnnotations) {
		visible.Annotations = maps.Clone(class.Annotations)
		// It repeats everything else, and so what is hidden.
		delete(visible.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	if p.Hides(v1alpha1.DeviceClassConfig) {
		visible.Spec.Config = nil
	}
	if p.Hides(v1alpha1.DeviceClassSelectors) {
		visible.Spec.Selectors = nil
	}
	return visible
}
