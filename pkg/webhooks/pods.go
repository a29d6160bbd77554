// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

const podKind = "Pod"

// podHandler answers requests about pods that are created by a tenant's vCluster. It needs the TenantClusters alone: that
// the servers are not known yet keeps no pod waiting.
type podHandler struct{ cluster *cluster.Cluster }

// podFields are what is decoded of a pod: what rules.Pod reads. Every other part of a pod would be memory for nothing.
type podFields struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		ResourceClaims []corev1.PodResourceClaim `json:"resourceClaims"`
	} `json:"spec"`
}

// Handle implements admission.Handler.
func (h *podHandler) Handle(ctx context.Context, request admission.Request) admission.Response {
	fields := podFields{}
	if err := anything.decode(request.Object.Raw, &fields); err != nil {
		return failed(podKind, http.StatusBadRequest, err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: fields.Metadata.Name,
			Labels: fields.Metadata.Labels, Annotations: fields.Metadata.Annotations},
		Spec: corev1.PodSpec{ResourceClaims: fields.Spec.ResourceClaims},
	}
	tenant, err := h.cluster.TenantCluster(ctx, types.NamespacedName{Namespace: request.Namespace, Name: pod.Labels[names.MarkerLabel]})
	if err != nil {
		return unread(ctx, podKind, err)
	}
	given := slices.Clone(pod.Spec.ResourceClaims)
	var unknown error
	result := rules.Pod(tenant, pod, func(kind schema.GroupVersionKind, name string) client.Object {
		claim, err := h.cluster.Metadata(ctx, kind, types.NamespacedName{Namespace: request.Namespace, Name: name})
		unknown = errors.Join(unknown, err)
		if claim == nil {
			return nil
		}
		return claim
	})
	if unknown != nil {
		return unread(ctx, podKind, unknown)
	}
	count(podKind, result)
	response := responseOf(&request, result)
	if result.Allowed() {
		response.Patches = renamed(given, pod.Spec.ResourceClaims)
	}
	return response
}

// renamed are the patches that change the names in the claims of a pod. They have nothing else in them, so that fields that
// this version does not know stay in the pod.
func renamed(given, now []corev1.PodResourceClaim) []jsonpatch.Operation {
	var patches []jsonpatch.Operation
	for i := range now {
		for field, names := range map[string][2]*string{
			"resourceClaimName":         {given[i].ResourceClaimName, now[i].ResourceClaimName},
			"resourceClaimTemplateName": {given[i].ResourceClaimTemplateName, now[i].ResourceClaimTemplateName},
		} {
			if names[0] != names[1] {
				patches = append(patches, jsonpatch.NewOperation("replace", fmt.Sprintf("/spec/resourceClaims/%d/%s", i, field), *names[1]))
			}
		}
	}
	return patches
}
