// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IPAddressSpec has the owner of an address. It is immutable: a released address is deleted, and created again for the
// next Machine.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an IPAddress is immutable: delete it and make another"
type IPAddressSpec struct {
	// Address in its canonical form: 192.168.100.10 or 2001:db8::a.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IPv4 or IPv6 address"
	Address string `json:"address"`
	// PrefixLength of the network that the address is in, in bits.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=128
	PrefixLength int32 `json:"prefixLength"`
	// Gateway of the network; empty if it has none.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="gateway must be an IPv4 or IPv6 address"
	Gateway string `json:"gateway,omitempty"`
	// Pool that the address was taken from, for people to read: a network, and its ranges if it has any.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Pool string `json:"pool,omitempty"`
	// Network of the address, as in the value of a network hook: vlan:100, vni:5000 or id:blue. Each network can have
	// the same address once. Empty: the network of servers that are not moved.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Network string `json:"network,omitempty"`
	// MachineRef is the Machine that has the address.
	MachineRef MachineReference `json:"machineRef"`
}

// MachineReference refers to one Machine, and to no earlier or later Machine of the same name.
type MachineReference struct {
	// Namespace of the Machine.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the Machine.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the Machine.
	UID types.UID `json:"uid"`
}

// IPAddress is an address that a Machine has. There is one object per address, named after it, so creating the object
// is the lock. The name is the IPv4 address, or the IPv6 address written out in full with '-' in place of ':'. If a
// tenant's network is set, its name comes first: vlan-100.192.168.100.10. The manager alone writes IPAddresses, and
// deletes them when the server of their Machine is back in the pool.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=ipaddresses,shortName=kmip,categories=karpenter-metal3
// +kubebuilder:validation:XValidation:rule="self.spec.address.contains(':') || (has(self.spec.network) ? self.metadata.name.endsWith('.' + self.spec.address) : self.metadata.name == self.spec.address)",message="the name of an IPAddress must be its address, after that of its network if it has one"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Prefix",type=integer,JSONPath=`.spec.prefixLength`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.spec.gateway`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.machineRef.namespace`
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.machineRef.name`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPAddress struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPAddressSpec `json:"spec"`
}

// IPAddressList is a list of IPAddresses.
//
// +kubebuilder:object:root=true
type IPAddressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPAddress `json:"items"`
}
