// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineNode is what the provider, which sees the tenant's cluster, reports to the manager, which does not.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.name) || has(self.name) && self.name == oldSelf.name",message="name is immutable: delete the Machine and make another"
type MachineNode struct {
	// Name of the Node, once it has registered in the tenant's cluster. From then on the Machine has joined.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// KubernetesVersion is the minor version of the tenant's API server, such as v1.36, when the Machine was given what it joins
	// with. Its server was installed with a kubelet of that version, unless the image brings one.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Resources are how much cpu, memory and ephemeral-storage the node has before the kubelet sets anything aside. The
	// provider reports them once, when the node is initialized, and plans with that for nodes of the same NodeType and
	// MetalNodeClass. Other tenants are not planned with it: if it is less than the NodeType allows, an event tells
	// operators.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(key, key in ['cpu', 'memory', 'ephemeral-storage'])",message="resources are cpu, memory and ephemeral-storage"
	// +kubebuilder:validation:XValidation:rule="['cpu', 'memory', 'ephemeral-storage'].all(key, !(key in self) || quantity(string(self[key])).isGreaterThan(quantity('0')))",message="resources of a node are more than 0"
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Unhealthy is the condition of the Node because of which Karpenter replaces it. The provider reports it before it deletes the
	// Machine, and the manager quarantines the server.
	// +optional
	Unhealthy *UnhealthyNode `json:"unhealthy,omitempty"`
}

// MaxUnhealthyMessage is how many characters of the message of a Node's condition are kept. The tenant controls it.
const MaxUnhealthyMessage = 512

// UnhealthyNode is a condition of a Node that has lasted for longer than Karpenter tolerates.
type UnhealthyNode struct {
	// Condition is its type, such as Ready or GpuMemWatch.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Condition string `json:"condition"`
	// Status of the condition.
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status corev1.ConditionStatus `json:"status"`
	// Since is when it got that status.
	Since metav1.Time `json:"since"`
	// Message of the condition.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// String says it in one line: "GpuMemWatch is True since 2026-11-22T15:04:05Z: GPU 3".
func (u *UnhealthyNode) String() string {
	return fmt.Sprintf("%s is %s since %s: %s", u.Condition, u.Status, u.Since.UTC().Format(time.RFC3339), u.Message)
}

// ReportedNode is what the provider has reported about the node of the Machine. It shares what it refers to with the Machine.
func (m *Machine) ReportedNode() MachineNode {
	if m.Spec.Node == nil {
		return MachineNode{}
	}
	return *m.Spec.Node
}

// HasJoined returns whether the Machine has a server of a NodeType that has become a node.
func (m *Machine) HasJoined() bool {
	return m.Status.NodeTypeRef != nil && meta.IsStatusConditionTrue(m.Status.Conditions, ConditionJoined)
}

// NodeSize is how much cpu in cores, and memory and ephemeral-storage in bytes, the node of the Machine has, as its provider has reported
// it. It is nil unless the Machine has joined: a report before Metal3 has installed the server says nothing of the server.
func (m *Machine) NodeSize() corev1.ResourceList {
	if !m.HasJoined() {
		return nil
	}
	return m.ReportedNode().Resources
}

// ReportNode changes what the provider reports about the node of the Machine.
func (m *Machine) ReportNode(change func(*MachineNode)) {
	if m.Spec.Node == nil {
		m.Spec.Node = &MachineNode{}
	}
	change(m.Spec.Node)
}
