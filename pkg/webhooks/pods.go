// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/webhooks/rules"
)

const podKind = "Pod"

// podHandler answers requests about pods that a tenant's vCluster creates. It needs only the TenantClusters, so no pod
// waits until the servers are known.
type podHandler struct{ cluster *cluster.Cluster }

// podFields are the fields of a pod that rules.Pod reads. Decoding more would waste memory.
type podFields struct {
	Metadata struct {
		Name        string            `json:"name"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		ResourceClaims      []corev1.PodResourceClaim `json:"resourceClaims"`
		Containers          []containerFields         `json:"containers"`
		InitContainers      []containerFields         `json:"initContainers"`
		EphemeralContainers []containerFields         `json:"ephemeralContainers"`
		Resources           resourceFields            `json:"resources"`
	} `json:"spec"`
}

type (
	containerFields struct {
		Resources resourceFields `json:"resources"`
	}
	// resourceFields have no quantities: a resource of a device class is judged regardless of its amount.
	resourceFields struct {
		Limits   map[corev1.ResourceName]json.RawMessage `json:"limits"`
		Requests map[corev1.ResourceName]json.RawMessage `json:"requests"`
	}
)

// asked returns the resources that a pod asks for in any way, each with the first field that does.
func (p *podFields) asked() rules.Asked {
	asked, spec := rules.Asked{}, field.NewPath("spec")
	add := func(resources *resourceFields, path *field.Path) {
		path = path.Child("resources")
		for resource := range resources.Limits {
			asked.Add(resource, path.Child("limits"))
		}
		for resource := range resources.Requests {
			asked.Add(resource, path.Child("requests"))
		}
	}
	for _, list := range []struct {
		name       string
		containers []containerFields
	}{
		{"containers", p.Spec.Containers}, {"initContainers", p.Spec.InitContainers}, {"ephemeralContainers", p.Spec.EphemeralContainers},
	} {
		for i := range list.containers {
			add(&list.containers[i].Resources, spec.Child(list.name).Index(i))
		}
	}
	add(&p.Spec.Resources, spec)
	return asked
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
	given, host := slices.Clone(pod.Spec.ResourceClaims), &podHost{cluster: h.cluster, ctx: ctx, namespace: request.Namespace}
	result := rules.Pod(tenant, pod, fields.asked(), host)
	if host.err != nil {
		return unread(ctx, podKind, host.err)
	}
	count(podKind, result)
	response := responseOf(&request, result)
	if result.Allowed() {
		response.Patches = renamed(given, pod.Spec.ResourceClaims)
	}
	return response
}

// renamed returns the patches that change the names in the claims of a pod. They contain nothing else, so the pod keeps
// fields that this version does not know.
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

// podHost reads the host for one request about a pod. It implements rules.Host.
type podHost struct {
	cluster   *cluster.Cluster
	ctx       context.Context
	namespace string
	err       error
}

// Claim implements rules.Host.
func (h *podHost) Claim(kind schema.GroupVersionKind, name string) client.Object {
	claim, err := h.cluster.Metadata(h.ctx, kind, types.NamespacedName{Namespace: h.namespace, Name: name})
	h.err = errors.Join(h.err, err)
	if claim == nil {
		return nil
	}
	return claim
}

// DeviceClasses implements rules.Host.
func (h *podHost) DeviceClasses() []resourcev1.DeviceClass {
	classes, err := h.cluster.DeviceClasses(h.ctx)
	h.err = errors.Join(h.err, err)
	return classes
}

// Claims implements rules.Host.
func (h *podHost) Claims(tenant string) int {
	count, err := h.cluster.Claims(h.ctx, h.namespace, tenant)
	h.err = errors.Join(h.err, err)
	return count
}
