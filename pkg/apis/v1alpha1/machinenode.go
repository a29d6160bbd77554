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

// MachineNode is the report of the provider, which sees the tenant's cluster, to the manager, which does not.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.name) || has(self.name) && self.name == oldSelf.name",message="name is immutable: delete the Machine and make another"
type MachineNode struct {
	// Name of the Node, once it has registered in the tenant's cluster. From then on the Machine has joined.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// KubernetesVersion is the minor version of the tenant's API server, such as v1.36, when the Machine got its join
	// data. Its server was installed with a kubelet of that version, unless the image brings one.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Resources are the node's cpu, memory and ephemeral-storage before the kubelet sets anything aside. The provider
	// reports them once, when the node is initialized. It plans with them for nodes of the same NodeType and
	// MetalNodeClass. Plans for other tenants do not use them: if they are less than the NodeType allows, an event
	// tells operators.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(key, key in ['cpu', 'memory', 'ephemeral-storage'])",message="resources are cpu, memory and ephemeral-storage"
	// +kubebuilder:validation:XValidation:rule="['cpu', 'memory', 'ephemeral-storage'].all(key, !(key in self) || quantity(string(self[key])).isGreaterThan(quantity('0')))",message="resources of a node are more than 0"
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Unhealthy is the condition of the Node that made Karpenter replace it. The provider reports it before it deletes
	// the Machine, and the manager quarantines the server.
	// +optional
	Unhealthy *UnhealthyNode `json:"unhealthy,omitempty"`
}

// MaxUnhealthyMessage is how many characters of a Node's condition message, which the tenant controls, are kept.
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
	// Since is when the condition got that status.
	Since metav1.Time `json:"since"`
	// Message of the condition.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// String returns the condition in one line: "GpuMemWatch is True since 2026-11-22T15:04:05Z: GPU 3".
func (u *UnhealthyNode) String() string {
	return fmt.Sprintf("%s is %s since %s: %s", u.Condition, u.Status, u.Since.UTC().Format(time.RFC3339), u.Message)
}

// ReportedNode returns the provider's report on the node of the Machine. The result shares references with the Machine.
func (m *Machine) ReportedNode() MachineNode {
	if m.Spec.Node == nil {
		return MachineNode{}
	}
	return *m.Spec.Node
}

// HasJoined reports whether the Machine has a server of a NodeType that has become a node.
func (m *Machine) HasJoined() bool {
	return m.Status.NodeTypeRef != nil && meta.IsStatusConditionTrue(m.Status.Conditions, ConditionJoined)
}

// NodeSize returns the cpu in cores, memory and ephemeral-storage in bytes, that the provider has reported for the
// node. It is nil unless the Machine has joined: a report from before the installation says nothing about the server.
func (m *Machine) NodeSize() corev1.ResourceList {
	if !m.HasJoined() {
		return nil
	}
	return m.ReportedNode().Resources
}

// ReportNode changes the provider's report on the node of the Machine.
func (m *Machine) ReportNode(change func(*MachineNode)) {
	if m.Spec.Node == nil {
		m.Spec.Node = &MachineNode{}
	}
	change(m.Spec.Node)
}
