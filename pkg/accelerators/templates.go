// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads as the client does, and adds the requirement to what core makes the pods of capacity buffers from. Those pods
// exist only in core, which never lists them, so that their template is the one place to say it.
func (k *keeper) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := k.Client.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	// The object is the caller's, but a cache may have been asked not to copy what it points to.
	switch typed := object.(type) {
	case *corev1.PodTemplate:
		keepTemplateOff(&typed.Template)
	case *appsv1.Deployment:
		keepTemplateOff(&typed.Spec.Template)
	case *appsv1.StatefulSet:
		keepTemplateOff(&typed.Spec.Template)
	case *appsv1.ReplicaSet:
		keepTemplateOff(&typed.Spec.Template)
	}
	return nil
}

func keepTemplateOff(template *corev1.PodTemplateSpec) {
	if pod := (&corev1.Pod{Spec: template.Spec}); !MayNeed(pod) {
		template.Spec.Affinity = keepOff(template.Spec.Affinity)
	}
}
