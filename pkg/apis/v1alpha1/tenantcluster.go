// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantClusterSpec says how servers join a tenant and which of them it may have.
type TenantClusterSpec struct {
	// APIServerEndpoint is where servers reach the tenant's API server, as host:port.
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:Pattern=`^(\[[0-9a-fA-F:]+\]|[^:/]+):[0-9]{1,5}$`
	APIServerEndpoint string `json:"apiServerEndpoint"`
	// JoinMode says how servers join: Kubeadm (the default) or VCluster.
	// +optional
	JoinMode JoinMode `json:"joinMode,omitempty"`
	// AllowedNodeTypes are the types that this tenant may have, by name, or as "<provider>.*" for all of a
	// NodeProvider. Unset means all, an empty list means none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	AllowedNodeTypes *[]string `json:"allowedNodeTypes,omitempty"`
	// Network is the network that servers are moved into before they boot this tenant's image. A network controller
	// moves them; until it has confirmed that, nothing is installed, and until it has confirmed the way back, nobody
	// else can claim the server. Unset moves nothing.
	// +optional
	Network *TenantNetwork `json:"network,omitempty"`
	// PrivateNodes are the pools of servers that the tenant has: the block of that name of a vcluster.yaml.
	// +optional
	PrivateNodes *PrivateNodes `json:"privateNodes,omitempty"`
	// Quota bounds how many servers and GPUs the tenant has at a time. Unset: no bound.
	// +optional
	Quota *Quota `json:"quota,omitempty"`
	// Sync says which device classes the tenant may ask for, and what is in sync with the host.
	// +optional
	Sync Sync `json:"sync,omitempty"`
}

// TenantClusterStatus is the observed state of a TenantCluster.
type TenantClusterStatus struct {
	// Conditions: PoolsSynced, ServersReturned, DRASynced.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantCluster is a Kubernetes cluster that servers can join. Machines in its namespace refer to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=kmc,categories=karpenter-metal3
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.apiServerEndpoint`
// +kubebuilder:printcolumn:name="Allowed Types",type=string,JSONPath=`.spec.allowedNodeTypes`
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.status.conditions[?(@.type=="PoolsSynced")].reason`
// +kubebuilder:printcolumn:name="DRA",type=string,JSONPath=`.status.conditions[?(@.type=="DRASynced")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TenantCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TenantClusterSpec `json:"spec"`
	// +optional
	Status TenantClusterStatus `json:"status,omitempty"`
}

// TenantClusterList is a list of TenantClusters.
//
// +kubebuilder:object:root=true
type TenantClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TenantCluster `json:"items"`
}
