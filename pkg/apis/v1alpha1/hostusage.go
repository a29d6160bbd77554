// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// HostUsageSpec is the record of one server. It is a spec and not a status, because tools that restore objects from a
// backup leave out every status.
type HostUsageSpec struct {
	// Uses of the server, in the order of their starts. They do not overlap, and only the last one may have no end.
	// +optional
	// +listType=atomic
	Uses []HostUse `json:"uses,omitempty"`
	// Folded are sums of earlier uses. Uses shorter than a minute are summed by day. Others are summed by day, month or
	// year, in UTC, until the record is small enough. No use is in two sums, or also in uses.
	// +optional
	// +listType=atomic
	Folded []FoldedUses `json:"folded,omitempty"`
	// RemovedUntil is the end of the last use that was removed for its age; unset while the record is complete.
	// +optional
	RemovedUntil *metav1.MicroTime `json:"removedUntil,omitempty"`
}

// HostUse is one claim of a Machine on the server, from the write of the claim until its removal. It includes the time
// of installing, of deprovisioning and of cleaning.
type HostUse struct {
	// HostUID is the UID of the BareMetalHost at that time.
	// +optional
	HostUID types.UID `json:"hostUID,omitempty"`
	// Machine that had the server.
	Machine MachineReference `json:"machine"`
	// TenantCluster that the Machine was charged to, by its name in the Machine's namespace; empty for none.
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
	// Claimed is the time in the claim on the server, if it differs from the start: the clock had been set back, and no
	// use begins before the previous end. The end is then moved as far as the start, so the length is right.
	// +optional
	Claimed *metav1.MicroTime `json:"claimed,omitempty"`
	// End of the use; unset as long as it lasts.
	// +optional
	End *metav1.MicroTime `json:"end,omitempty"`
}

// FoldedUses is the sum of uses of the server by the Machines of one namespace, all charged to one TenantCluster or to
// none, and all as one NodeType.
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
	// Start of the first use.
	Start metav1.MicroTime `json:"start"`
	// End of the last use. Start and end are in the same day, month or year.
	End metav1.MicroTime `json:"end"`
	// Microseconds is the sum of their lengths.
	// +kubebuilder:validation:Minimum=0
	Microseconds int64 `json:"microseconds"`
	// Cost is the sum of their hours times the cost of the NodeType when it was chosen; unset if no cost was recorded.
	// +optional
	Cost *resource.Quantity `json:"cost,omitempty"`
}

// Duration returns the sum of the lengths of the uses.
func (f *FoldedUses) Duration() time.Duration {
	return time.Duration(f.Microseconds) * time.Microsecond
}

// HostUsage records which Machine had a server when. It has the namespace and the name of the BareMetalHost, and
// outlives it. The manager alone writes it. Its flag --usage-retention limits how long ended uses are kept.
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
