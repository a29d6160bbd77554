// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// gpu is the resource that the pods request.
const gpu = "nvidia.com/gpu"

// States whose times are of interest.
const (
	stepObserved   = "seen"
	stepBound      = "bound to a node"
	stepRunning    = "running"
	stepClaimed    = "claimed"
	stepAsked      = "asked for"
	stepReady      = "ready"
	stepAdvertises = "advertises"
)

// describe returns a short description of an object, and the states that it has reached.
func describe(object client.Object) (words string, steps []string) {
	steps = []string{stepObserved}
	reached := func(is bool, step string) {
		if is {
			steps = append(steps, step)
		}
	}
	switch object := object.(type) {
	case *corev1.Pod:
		reached(object.Spec.NodeName != "", stepBound)
		reached(object.Status.Phase == corev1.PodRunning, stepRunning)
		words = describePod(object)
	case *karpv1.NodeClaim:
		words = describeNodeClaim(object)
	case *v1alpha1.Machine:
		reached(meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionClaimed), stepClaimed)
		reached(object.Status.Phase == v1alpha1.MachineProvisioning, stepAsked)
		words = describeMachine(object)
	case *bmov1alpha1.BareMetalHost:
		words = describeHost(object)
	case *corev1.Node:
		reached(nodeIsReady(object) == nil, stepReady)
		reached(object.Status.Allocatable.Name(gpu, "").Value() > 0, stepAdvertises)
		words = describeNode(object)
	}
	if object.GetDeletionTimestamp() != nil {
		words += ", being deleted"
	}
	return words, steps
}

func describePod(pod *corev1.Pod) string {
	words := strings.ToLower(string(pod.Status.Phase))
	if pod.Spec.NodeName != "" {
		words += " on " + pod.Spec.NodeName
	}
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			words += fmt.Sprintf(", %s %s", waiting.Reason, short(waiting.Message))
		}
	}
	return words
}

func describeNodeClaim(claim *karpv1.NodeClaim) string {
	conditions := claim.StatusConditions()
	words := "wanted"
	for _, condition := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		if conditions.Get(condition).IsTrue() {
			words = strings.ToLower(condition)
		}
	}
	if conditions.Get(karpv1.ConditionTypeDrifted).IsTrue() {
		words += ", drifted"
	}
	return words
}

func describeNode(node *corev1.Node) string {
	words := "ready"
	if err := nodeIsReady(node); err != nil {
		words = short(err.Error())
	}
	return fmt.Sprintf("%s, %s with %s CPUs and %s GPUs", node.Status.NodeInfo.OSImage, words, node.Status.Capacity.Cpu(),
		node.Status.Allocatable.Name(gpu, ""))
}

// most is the length of a message, in bytes, that is shown whole.
const most = 250

// describeHost describes a host; nil is a missing one.
func describeHost(host *bmov1alpha1.BareMetalHost) string {
	if host == nil {
		return "not there"
	}
	words := string(host.Status.Provisioning.State)
	if words == "" {
		words = "new"
	}
	if host.Spec.ConsumerRef != nil {
		words += ", claimed by " + host.Spec.ConsumerRef.Name
	}
	if host.Status.PoweredOn {
		words += ", on"
	}
	if host.Status.ErrorType != "" {
		words += fmt.Sprintf(", %s: %s", host.Status.ErrorType, short(host.Status.ErrorMessage))
	}
	return words
}

// describeMachine describes a Machine; nil is a missing one.
func describeMachine(machine *v1alpha1.Machine) string {
	if machine == nil {
		return "not there"
	}
	words := string(machine.Status.Phase)
	if words == "" {
		words = "new"
	}
	if ready := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		words += fmt.Sprintf(", %s: %s", ready.Reason, short(ready.Message))
	}
	return words
}

// short returns the beginning of a message, on one line.
func short(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > most {
		message = message[:most] + "..."
	}
	return message
}
