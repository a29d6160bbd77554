// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package pendingpods

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// wish is what a pod wants of a node, worked out once for all NodeTypes.
type wish struct {
	requests corev1.ResourceList
	// names of the resources that are asked for, sorted.
	names    []corev1.ResourceName
	selector selector
	// claims tells whether the pod has resource claims. Which devices they want, only their device classes know.
	claims bool
}

func wishOf(pod *corev1.Pod, types []v1alpha1.NodeType) wish {
	requests := resources.RequestsForPods(pod)
	maps.DeleteFunc(requests, func(name corev1.ResourceName, quantity resource.Quantity) bool {
		// How many pods a node takes is the kubelet's to say, and no NodeType's.
		return quantity.Sign() <= 0 || name == corev1.ResourcePods
	})
	return wish{
		requests: requests,
		names:    slices.Sorted(maps.Keys(requests)),
		selector: selectorOf(pod, types),
		claims:   len(pod.Spec.ResourceClaims) > 0,
	}
}

// check returns the first thing that keeps a type from serving the pod, and says it in a clause.
func (w wish) check(nodeType *v1alpha1.NodeType, allowed func(nodeType, provider string) bool) (obstacle, string) {
	if !allowed(nodeType.Name, nodeType.Spec.ProviderRef.Name) {
		return notAllowed, "not allowed for this tenant"
	}
	if nodeType.Spec.Accelerated() && !w.claims && !v1alpha1.AsksForAccelerator(w.requests, nodeType.Spec.Resources) {
		return forAcceleratorsOnly, fmt.Sprintf("has accelerators (%s) and the pod asks for none of them", accelerators(nodeType))
	}
	if obstacle, clause := w.checkResources(nodeType); obstacle != nothing {
		return obstacle, clause
	}
	if unmet := w.selector.unmet(nodeType); len(unmet) > 0 {
		return labelsDiffer, "does not match nodeSelector/affinity " + strings.Join(unmet, " and ")
	}
	return checkCapacity(nodeType, w.selector)
}

func (w wish) checkResources(nodeType *v1alpha1.NodeType) (obstacle, string) {
	var lacking, small []string
	for _, name := range w.names {
		asked, has := w.requests[name], allocatable(nodeType, name)
		switch _, declared := nodeType.Spec.Resources[name]; {
		case !declared && name == corev1.ResourceEphemeralStorage:
			// Types need not say how big their disks are.
		case !declared:
			lacking = append(lacking, string(name))
		case asked.Cmp(has) > 0:
			small = append(small, fmt.Sprintf("asks %s %s, has %s", name, asked.String(), has.String()))
		}
	}
	if len(lacking) > 0 {
		return lacksResource, "has no " + strings.Join(lacking, ", ")
	}
	if len(small) > 0 {
		return tooSmall, "too small: " + strings.Join(small, " and ")
	}
	return nothing, ""
}

// allocatable is what of a resource of the type is there for pods.
func allocatable(nodeType *v1alpha1.NodeType, name corev1.ResourceName) resource.Quantity {
	has := nodeType.Spec.Resources[name].DeepCopy()
	if nodeType.Spec.Overhead != nil {
		if reserved, ok := nodeType.Spec.Overhead.KubeReserved[name]; ok {
			has.Sub(reserved)
		}
	}
	return has
}

// checkCapacity looks for a free server, in the places that the pod may be in.
func checkCapacity(nodeType *v1alpha1.NodeType, selector selector) (obstacle, string) {
	capacity, where := placesOf(nodeType, selector)
	// A free server is of no use when the type as a whole has reached its limit.
	if capacity.Available > 0 && nodeType.Status.Capacity.Available > 0 {
		return nothing, ""
	}
	return noneFree, counts(capacity, where, nodeType.Spec.MaxCapacity)
}

func counts(capacity v1alpha1.Capacity, where string, limit *int32) string {
	if capacity.Total == 0 {
		return "no server matches" + where
	}
	matches := fmt.Sprintf("%d servers match%s", capacity.Total, where)
	if capacity.Total == 1 {
		matches = "1 server matches" + where
	}
	clause := fmt.Sprintf("%s, %d claimed, %d in error", matches, capacity.Claimed, capacity.Error)
	if capacity.Quarantined > 0 {
		clause += fmt.Sprintf(", %d quarantined", capacity.Quarantined)
	}
	if capacity.TooSmall > 0 {
		clause += fmt.Sprintf(", %d too small", capacity.TooSmall)
	}
	if limit != nil {
		return clause + fmt.Sprintf(", limited to %d", *limit)
	}
	// Being inspected or cleaned, for example. A server can be claimed, in error, quarantined and too small at once, so this
	// may be too few.
	if rest := capacity.Total - capacity.Claimed - capacity.Error - capacity.Quarantined - capacity.TooSmall; rest > 0 {
		clause += fmt.Sprintf(", %d not ready", rest)
	}
	return clause
}

// accelerators are the names of those of a type: its resources, and the drivers of its devices.
func accelerators(nodeType *v1alpha1.NodeType) string {
	var text []string
	for _, name := range v1alpha1.Accelerators(nodeType.Spec.Resources) {
		text = append(text, string(name))
	}
	return strings.Join(append(text, nodeType.Spec.Drivers()...), ", ")
}
