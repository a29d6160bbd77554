// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
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
	// Folded are sums of earlier uses: of those shorter than a minute, by day, and of as many others as the size of the record asks for,
	// by day, month or year, in UTC. No use is in two of them, or in uses too.
	// +optional
	// +listType=atomic
	Folded []FoldedUses `json:"folded,omitempty"`
	// RemovedUntil is the end of the last use that was removed because of its age; unset as long as the record has all.
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
	// before the end of the one before. The end is then moved by as much as the start, and the length is right.
	// +optional
	Claimed *metav1.MicroTime `json:"claimed,omitempty"`
	// End of the use; unset as long as it lasts.
	// +optional
	End *metav1.MicroTime `json:"end,omitempty"`
}

// FoldedUses are the sum of some uses of the server by the Machines of one namespace, all charged to one TenantCluster or to none, and all
// as one NodeType.
type FoldedUses struct {
	// Namespace of the Machines.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// TenantCluster that the Machines were charged to; empty for none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TenantCluster string `json:"tenantCluster,omitempty"`
	// NodeType that the server was claimed as.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NodeType string `json:"nodeType,omitempty"`
	// Count of the uses.
	// +kubebuilder:validation:Minimum=1
	Count int64 `json:"count"`
	// Start of the first one.
	Start metav1.MicroTime `json:"start"`
	// End of the last one. Both are of the same day, month or year.
	End metav1.MicroTime `json:"end"`
	// Microseconds are the sum of their lengths.
	// +kubebuilder:validation:Minimum=0
	Microseconds int64 `json:"microseconds"`
	// Cost is the sum of their hours, each times the cost of the NodeType when that was chosen; unset if that is recorded of none of them.
	// +optional
	Cost *resource.Quantity `json:"cost,omitempty"`
}

// Duration is the sum of the lengths of the uses.
func (f *FoldedUses) Duration() time.Duration {
	return time.Duration(f.Microseconds) * time.Microsecond
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
