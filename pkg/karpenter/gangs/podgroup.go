// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// podGroups are Kubernetes' own (KEP-4671). Kubernetes 1.36 serves them as v1alpha2, 1.37 as v1beta1 and v1alpha3, each
// only if enabled. The fields that we read are the same in all versions, so we read them without a type.
var podGroups = schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PodGroup"}

// podGroup holds the fields of a PodGroup. kube-scheduler reports no pods as unschedulable before minCount exist.
type podGroup struct {
	// minCount is how many pods must run at one time, 0 if each may run by itself.
	minCount int
	// key is the label of the domain that all pods must share, empty if there is none.
	key string
	// problem says why the size is not known.
	problem string
}

// PodGroupOf returns the name of the PodGroup of a pod, "" if it has none.
func PodGroupOf(pod *corev1.Pod) string {
	if pod.Spec.SchedulingGroup == nil || pod.Spec.SchedulingGroup.PodGroupName == nil {
		return ""
	}
	return *pod.Spec.SchedulingGroup.PodGroupName
}

// readGroups reads the PodGroups of gangs. It removes groups whose pods may run alone and anywhere.
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

// findGroup returns a PodGroup. It is empty if it does not exist, and nil if the API server serves none.
func findGroup(ctx context.Context, mapper meta.RESTMapper, live client.Reader, key client.ObjectKey) (*unstructured.Unstructured, error) {
	mapping, err := mapper.RESTMapping(podGroups)
	if meta.IsNoMatchError(err) {
		return nil, nil // they were served when the pod was made
	}
	if err != nil {
		return nil, fmt.Errorf("looking for PodGroups, %w", err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	_, err = kube.Find(ctx, live, key, object)
	return object, err
}

func (p *Placer) readGroup(ctx context.Context, key client.ObjectKey) (podGroup, error) {
	object, err := findGroup(ctx, p.Client.RESTMapper(), p.Live, key)
	if object == nil || err != nil {
		return podGroup{}, err
	}
	if object.GetName() == "" {
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

// modePeriod is how long a disruptionMode is remembered. It cannot change, but another PodGroup may get the name later.
const modePeriod = time.Minute

// DisruptionModes knows which PodGroups are disrupted as a whole.
type DisruptionModes struct {
	mapper meta.RESTMapper
	live   client.Reader
	known  *cache.Expiring
}

// NewDisruptionModes returns a DisruptionModes that reads PodGroups live.
func NewDisruptionModes(mapper meta.RESTMapper, live client.Reader, clock clock.Clock) *DisruptionModes {
	return &DisruptionModes{mapper: mapper, live: live, known: cache.NewExpiringWithClock(clock)}
}

// Together reports whether the pods of a PodGroup may only be disrupted as a whole, according to its disruptionMode. It
// reports false for a PodGroup that is gone or that must not be read.
func (m *DisruptionModes) Together(ctx context.Context, key client.ObjectKey) (bool, error) {
	if known, found := m.known.Get(key); found {
		return known.(bool), nil
	}
	object, err := findGroup(ctx, m.mapper, m.live, key)
	if err != nil && !apierrors.IsForbidden(err) {
		return false, err
	}
	together := err == nil && object != nil && isTogether(object)
	m.known.Set(key, together, modePeriod)
	return together, nil
}

// isTogether handles both forms of the field: a word in v1alpha2, and a union later.
func isTogether(podGroup *unstructured.Unstructured) bool {
	mode, _, _ := unstructured.NestedFieldNoCopy(podGroup.Object, "spec", "disruptionMode")
	if union, is := mode.(map[string]any); is {
		_, all := union["all"]
		return all
	}
	return mode == "PodGroup"
}
