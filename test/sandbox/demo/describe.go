// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func describePod(pod *corev1.Pod) (string, []step) {
	switch {
	case pod.DeletionTimestamp != nil:
		return "being deleted", []step{stepDeleting}
	case pod.Status.Phase == corev1.PodRunning:
		return "running on " + pod.Spec.NodeName, []step{stepCreated, stepRunning}
	case pod.Spec.NodeName != "":
		return "bound to " + pod.Spec.NodeName, []step{stepCreated}
	default:
		return "pending, asks for " + describeResources(podRequests(pod)), []step{stepCreated}
	}
}

func describeNodeClaim(claim *karpv1.NodeClaim) (string, []step) {
	steps := []step{stepCreated}
	conditions := claim.StatusConditions()
	if conditions.Get(karpv1.ConditionTypeLaunched).IsTrue() {
		steps = append(steps, stepClaimed)
	}
	if conditions.Get(karpv1.ConditionTypeRegistered).IsTrue() {
		steps = append(steps, stepJoined)
	}
	switch {
	case claim.DeletionTimestamp != nil:
		return "being deleted: its server goes back to the pool", append(steps, stepDeleting)
	case conditions.Get(karpv1.ConditionTypeInitialized).IsTrue():
		return "ready: node " + claim.Status.NodeName, steps
	case conditions.Get(karpv1.ConditionTypeRegistered).IsTrue():
		return "node " + claim.Status.NodeName + " has registered", steps
	case conditions.Get(karpv1.ConditionTypeLaunched).IsTrue():
		return "launched: " + claim.Status.ProviderID, steps
	default:
		return "wants one of " + strings.Join(wantedTypes(claim), ", "), steps
	}
}

func wantedTypes(claim *karpv1.NodeClaim) []string {
	for _, requirement := range claim.Spec.Requirements {
		if requirement.Key == corev1.LabelInstanceTypeStable && requirement.Operator == corev1.NodeSelectorOpIn {
			return slices.Sorted(slices.Values(requirement.Values))
		}
	}
	return []string{"any type"}
}

func describeMachine(machine *v1alpha1.Machine) (string, []step) {
	var steps []step
	for conditionType, reached := range map[string]step{
		v1alpha1.ConditionClaimed:     stepClaimed,
		v1alpha1.ConditionProvisioned: stepProvisioned,
		v1alpha1.ConditionJoined:      stepJoined,
	} {
		if meta.IsStatusConditionTrue(machine.Status.Conditions, conditionType) {
			steps = append(steps, reached)
		}
	}
	if machine.DeletionTimestamp != nil {
		steps = append(steps, stepDeleting)
	}
	if machine.Status.Phase == "" {
		return "", steps
	}
	line := strings.ToLower(string(machine.Status.Phase))
	if machine.Status.NodeTypeRef != nil && machine.Status.HostRef != nil {
		line += fmt.Sprintf(": type %s, cost %d, server %s", machine.Status.NodeTypeRef.Name, ptr.Deref(machine.Status.Cost, 0),
			machine.Status.HostRef.Name)
	}
	return line, steps
}

func describeHost(host *bmov1alpha1.BareMetalHost) (string, []step) {
	state := string(host.Status.Provisioning.State)
	if state == "" {
		return "", nil
	}
	line := "Metal3 says " + state
	if host.Status.ErrorMessage != "" {
		line += ": " + host.Status.ErrorMessage
	}
	var steps []step
	switch {
	case host.Spec.ConsumerRef != nil:
		line += ", claimed by " + host.Spec.ConsumerRef.Name
		if host.Status.Provisioning.State == bmov1alpha1.StateProvisioned {
			steps = append(steps, stepProvisioned)
		}
	case host.Status.Provisioning.State == bmov1alpha1.StateAvailable:
		line += ", free"
		steps = append(steps, stepAvailable)
	}
	return line, steps
}

func describeNode(node *corev1.Node) (string, []step) {
	if node.DeletionTimestamp != nil {
		return "being drained and deleted", []step{stepDeleting}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return "ready with " + describeResources(node.Status.Capacity), []step{stepJoined}
		}
	}
	return "registered", []step{stepJoined}
}

// podRequests are what the containers of a pod request.
func podRequests(pod *corev1.Pod) corev1.ResourceList {
	requests := resources.RequestsForPods(pod)
	delete(requests, corev1.ResourcePods)
	return requests
}

// describeResources lists the main resources, accelerators first.
func describeResources(list corev1.ResourceList) string {
	var parts []string
	for _, name := range v1alpha1.Accelerators(list) {
		quantity := list[name]
		parts = append(parts, fmt.Sprintf("%s %s", quantity.String(), name))
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if quantity, ok := list[name]; ok {
			parts = append(parts, fmt.Sprintf("%s %s", quantity.String(), name))
		}
	}
	if len(parts) == 0 {
		return "nothing in particular"
	}
	return strings.Join(parts, ", ")
}

// whyChosen compares the cost of the chosen type with the other types that fit the pod.
func whyChosen(pod *corev1.Pod, chosen string, nodeTypes []v1alpha1.NodeType) string {
	requests := podRequests(pod)
	fits := slices.DeleteFunc(slices.Clone(nodeTypes), func(nodeType v1alpha1.NodeType) bool {
		return !canServe(requests, nodeType.EffectiveResources())
	})
	slices.SortFunc(fits, func(a, b v1alpha1.NodeType) int {
		return cmp.Or(cmp.Compare(a.Status.Cost, b.Status.Cost), strings.Compare(a.Name, b.Name))
	})
	var parts []string
	for _, nodeType := range fits {
		parts = append(parts, fmt.Sprintf("%s %d", nodeType.Name, nodeType.Status.Cost))
	}
	switch {
	case len(fits) == 0:
		return "no type fits"
	case len(fits) == 1:
		return "the only one that fits"
	case fits[0].Name == chosen:
		return strings.Join(parts, " < ")
	default:
		return "not the cheapest: " + strings.Join(parts, " < ")
	}
}

// canServe returns whether a server has the requested resources, and its accelerators, if any, are requested.
func canServe(requests, capacity corev1.ResourceList) bool {
	if len(v1alpha1.Accelerators(capacity)) > 0 && !v1alpha1.AsksForAccelerator(requests, capacity) {
		return false
	}
	return resources.Fits(requests, capacity)
}
