// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// podGroups are Kubernetes' own (KEP-4671). Kubernetes 1.36 serves them as v1alpha2, 1.37 as v1beta1 and v1alpha3, and each only if asked
// to. What is read of them is the same in all, so they are read without a type.
var podGroups = schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PodGroup"}

// podGroup is what a PodGroup says. kube-scheduler shows none of its pods as unschedulable before minCount of them exist.
type podGroup struct {
	// minCount is how many pods must run at one time. It is 0 if each may run by itself.
	minCount int
	// key of the domain that all pods must be in, empty if there is none.
	key string
	// problem is why the size is not known.
	problem string
}

// PodGroupOf is the name of the PodGroup of a pod, empty if it has none.
func PodGroupOf(pod *corev1.Pod) string {
	if pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return ""
	}
	return *pod.Spec.SchedulingGroup.PodGroupName
}

// readGroups reads the PodGroups of gangs. Those that are no gangs at all, because each of their pods may run by itself and anywhere, are
// left out of what it returns.
func (p *Placer) readGroups(ctx context.Context, gangs []*gang) []*gang {
	return slices.DeleteFunc(gangs, func(g *gang) bool {
		name := PodGroupOf(g.pods[0])
		if name == "" {
			return false
		}
		g.group, g.unread = p.readGroup(ctx, client.ObjectKey{Namespace: g.namespace, Name: name})
		if g.group.key != "" {
			g.keys = slices.Compact(slices.Sorted(slices.Values(append(g.keys, g.group.key))))
		}
		sized := slices.ContainsFunc(g.pods, func(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.GangMinCountAnnotationKey] != "" })
		return g.unread == nil && g.group == (podGroup{}) && len(g.selectors) == 0 && !sized
	})
}

func (p *Placer) readGroup(ctx context.Context, key client.ObjectKey) (podGroup, error) {
	mapping, err := p.Client.RESTMapper().RESTMapping(podGroups)
	if meta.IsNoMatchError(err) {
		return podGroup{}, nil // it was served when the pod was made
	}
	if err != nil {
		return podGroup{}, fmt.Errorf("looking for PodGroups, %w", err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	found, err := kube.Find(ctx, p.Live, key, object)
	if err != nil {
		return podGroup{}, err
	}
	if !found {
		return podGroup{problem: fmt.Sprintf("PodGroup %s does not exist", key.Name)}, nil
	}
	result := podGroup{}
	minCount, _, _ := unstructured.NestedInt64(object.Object, "spec", "schedulingPolicy", "gang", "minCount")
	result.minCount = int(minCount)
	topology, _, _ := unstructured.NestedSlice(object.Object, "spec", "schedulingConstraints", "topology")
	for _, constraint := range topology { // one at most
		if fields, ok := constraint.(map[string]any); ok {
			result.key, _, _ = unstructured.NestedString(fields, "key")
		}
	}
	if parent, _, _ := unstructured.NestedString(object.Object, "spec", "parentCompositePodGroupName"); parent != "" {
		result.problem = fmt.Sprintf("PodGroup %s is part of CompositePodGroup %s, which is not read: say by the annotation %s of the pods "+
			"how many must run at one time", key.Name, parent, v1alpha1.GangMinCountAnnotationKey)
	}
	return result, nil
}
