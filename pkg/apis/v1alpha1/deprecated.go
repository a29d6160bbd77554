// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// This file reads what the minor version before this one has written, and writes what that version reads after a rollback. The next
// minor version removes it, and what calls FormerNode.

// formerChosenHost reads ChosenHostAnnotationKey as namespace/name/UID/NodeType, nil if it is not of that form.
func formerChosenHost(text string) *ChosenHost {
	parts := strings.Split(text, "/")
	if len(parts) != 4 || strings.HasPrefix(text, "{") {
		return nil
	}
	return &ChosenHost{
		HostReference: HostReference{Namespace: parts[0], Name: parts[1], UID: types.UID(parts[2])}, NodeType: parts[3],
	}
}

// Annotations of Machines in which the provider has reported what is now in spec.node.
const (
	formerNodeName          = Group + "/node-name"
	formerNodeResources     = Group + "/node-resources"
	formerKubernetesVersion = Group + "/kubernetes-version"
	formerUnhealthy         = Group + "/unhealthy"
)

// FormerNode returns spec.node with what a provider of the version before has reported in annotations beside it, and whether that is
// more than spec.node says. What is no report, or would not be valid, is left out: a tenant may have written it.
func (m *Machine) FormerNode() (node *MachineNode, more bool) {
	node = &MachineNode{}
	if m.Spec.Node != nil {
		node = m.Spec.Node.DeepCopy()
	}
	if name := m.Annotations[formerNodeName]; node.Name == "" && name != "" && len(name) <= 253 {
		node.Name, more = name, true
	}
	if version := m.Annotations[formerKubernetesVersion]; node.KubernetesVersion == "" && version != "" && len(version) <= 32 {
		node.KubernetesVersion, more = version, true
	}
	if text := m.Annotations[formerNodeResources]; node.Resources == nil && text != "" {
		var resources corev1.ResourceList
		if json.Unmarshal([]byte(text), &resources) == nil {
			measured := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
			maps.DeleteFunc(resources, func(name corev1.ResourceName, _ resource.Quantity) bool { return !slices.Contains(measured, name) })
			if len(resources) > 0 {
				node.Resources, more = resources, true
			}
		}
	}
	if node.Unhealthy == nil {
		node.Unhealthy = parseFormerUnhealthy(m.Annotations[formerUnhealthy])
		more = more || node.Unhealthy != nil
	}
	return node, more
}

var formerUnhealthyText = regexp.MustCompile(`(?s)^(\S{1,316}) is (True|False|Unknown) since (\S+): (.*)$`)

func parseFormerUnhealthy(text string) *UnhealthyNode {
	parts := formerUnhealthyText.FindStringSubmatch(text)
	if parts == nil {
		return nil
	}
	since, err := time.Parse(time.RFC3339, parts[3])
	if err != nil {
		return nil
	}
	message := []rune(parts[4])
	return &UnhealthyNode{
		Condition: parts[1], Status: corev1.ConditionStatus(parts[2]), Since: metav1.NewTime(since),
		Message: string(message[:min(len(message), MaxUnhealthyMessage)]),
	}
}

// reportFormerly writes the annotations that a manager and a provider of the version before read, so that after a rollback no Machine
// is taken for one that has not joined.
func (m *Machine) reportFormerly() {
	set := func(key, value string) {
		if value != "" {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, value)
		}
	}
	set(formerNodeName, m.Spec.Node.Name)
	set(formerKubernetesVersion, m.Spec.Node.KubernetesVersion)
	if len(m.Spec.Node.Resources) > 0 {
		text, _ := json.Marshal(m.Spec.Node.Resources) // quantities do not fail
		set(formerNodeResources, string(text))
	}
	if unhealthy := m.Spec.Node.Unhealthy; unhealthy != nil {
		set(formerUnhealthy, unhealthy.String())
	}
}

// formerConfirmations are the keys of confirmations in the version before.
var formerConfirmations = map[string]string{
	ConfirmAcceptClusterAnnotationKey:   Group + "/accept-cluster",
	ConfirmCollectMachinesAnnotationKey: Group + "/confirm-collection",
	ConfirmDeleteMachinesAnnotationKey:  Group + "/delete-machines",
}
