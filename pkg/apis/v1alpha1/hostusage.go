// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// HostUsageSpec is the record of one server. It is in the spec and not in a status, because tools that create the objects of a backup
// again leave out every status.
type HostUsageSpec struct {
	// Uses of the server in the order in which they began. They do not overlap, and only the last one may have no end.
	// +optional
	// +listType=atomic
	Uses []HostUse `json:"uses,omitempty"`
	// RemovedUntil is the end of the last use that was removed from the list; unset as long as it has all.
	// +optional
	RemovedUntil *metav1.MicroTime `json:"removedUntil,omitempty"`
}

// HostUse is one claim of a Machine on the server, from the write of the claim until its removal. The time of installing, of
// deprovisioning and of cleaning is part of it.
type HostUse struct {
	// HostUID is the UID of the BareMetalHost at that time.
	// +optional
	HostUID types.UID `json:"hostUID,omitempty"`
	// Machine that had the server.
	Machine MachineReference `json:"machine"`
	// TenantCluster is the name of the TenantCluster, in the namespace of the Machine, that the Machine was charged to; empty for none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TenantCluster string `json:"tenantCluster,omitempty"`
	// NodeType that the server was claimed as.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeType string `json:"nodeType,omitempty"`
	// Cost of the NodeType when it was chosen.
	// +optional
	Cost *int64 `json:"cost,omitempty"`
	// Start of the use.
	Start metav1.MicroTime `json:"start"`
	// Claimed is the time that the claim has on the server, if that is not the start: the clock had been set back, and no use begins
	// before the end of the one before.
	// +optional
	Claimed *metav1.MicroTime `json:"claimed,omitempty"`
	// End of the use; unset as long as it lasts.
	// +optional
	End *metav1.MicroTime `json:"end,omitempty"`
}

// HostUsage is the record of who had a server when. It has the namespace and the name of the BareMetalHost, and outlives it. The
// manager alone writes it, and removes uses that ended longer ago than its flag --usage-retention says.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=hostusages,shortName=kmhu,categories=karpenter-metal3
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.uses[-1:].tenantCluster`
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.uses[-1:].machine.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.uses[-1:].nodeType`
// +kubebuilder:printcolumn:name="Start",type=string,JSONPath=`.spec.uses[-1:].start`
// +kubebuilder:printcolumn:name="End",type=string,JSONPath=`.spec.uses[-1:].end`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HostUsage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec HostUsageSpec `json:"spec,omitempty"`
}

// HostUsageList is a list of HostUsages.
//
// +kubebuilder:object:root=true
type HostUsageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []HostUsage `json:"items"`
}
