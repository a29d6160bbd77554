// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// Pods adds the requirement to the pods that core lists.
func Pods() interceptor.Interceptor {
	return interceptor.OnList(func(_ context.Context, pods *corev1.PodList, _ []client.ListOption) error {
		for i := range pods.Items {
			restrict(&pods.Items[i].Spec, MayNeed(&pods.Items[i]))
		}
		return nil
	})
}

// Templates adds the requirement to what core builds the pods of capacity buffers from. Those pods exist only in core,
// which never lists them.
func Templates() interceptor.Interceptor {
	return interceptor.OnGet(func(_ context.Context, object client.Object, _ []client.GetOption) error {
		var template *corev1.PodTemplateSpec
		switch typed := object.(type) {
		case *corev1.PodTemplate:
			template = &typed.Template
		case *appsv1.Deployment:
			template = &typed.Spec.Template
		case *appsv1.StatefulSet:
			template = &typed.Spec.Template
		case *appsv1.ReplicaSet:
			template = &typed.Spec.Template
		default:
			return nil
		}
		restrict(&template.Spec, MayNeed(&corev1.Pod{Spec: template.Spec}))
		return nil
	})
}

func restrict(pod *corev1.PodSpec, mayNeed bool) {
	if !mayNeed {
		pod.Affinity = interceptor.WithNodeRequirements(pod.Affinity, absent)
	}
}
