// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineConfigTemplateSpec holds the templates. They are templates of Go's text/template, with the functions that
// docs/reference-snippets.md lists. In both, .Values has NodeClaim (the Machine), Project (its namespace), Properties,
// SSHKeys (lines for authorized_keys), BareMetalHost, AllocatedIP, PrefixLength and Gateway.
//
// +kubebuilder:validation:XValidation:rule="has(self.cloudInitTemplate) || has(self.networkDataTemplate)",message="give cloudInitTemplate, networkDataTemplate, or both"
type MachineConfigTemplateSpec struct {
	// DisplayName is what people call this template.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description is the purpose of the template.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// CloudInitTemplate renders a document for cloud-init, for the property karpenter.metal3.io/user-data-template:
	// cloud-config, a script, or a MIME message. SSH keys and the join are further parts of the user data.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=524288
	CloudInitTemplate string `json:"cloudInitTemplate,omitempty"`
	// NetworkDataTemplate renders the network data, for the property karpenter.metal3.io/network-data-template: either
	// OpenStack network_data or a cloud-init network configuration of version 2.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=524288
	NetworkDataTemplate string `json:"networkDataTemplate,omitempty"`
}

// MachineConfigTemplate is a template for documents that servers read at their first boot. Machines refer to it in
// their properties. An edit makes the Machines that were installed with it drift: Karpenter replaces them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=kmct,categories=karpenter-metal3
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Description",type=string,priority=1,JSONPath=`.spec.description`
type MachineConfigTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MachineConfigTemplateSpec `json:"spec"`
	// Status is empty. Clients write an empty one.
	// +optional
	Status *NoStatus `json:"status,omitempty"`
}

// MachineConfigTemplateList is a list of MachineConfigTemplates.
//
// +kubebuilder:object:root=true
type MachineConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MachineConfigTemplate `json:"items"`
}

// SSHKeySpec describes the public half of an SSH key.
type SSHKeySpec struct {
	// DisplayName is what people call this key.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description is the owner and the purpose of the key.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// PublicKey is one line in the format of authorized_keys: type, key, and a comment if you like. A Machine gets no
	// server if it refers to a key that cannot be read.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="!self.contains('PRIVATE KEY')",message="publicKey holds a private key: give the public one (the file that ends in .pub), and do not use this key pair any more"
	PublicKey string `json:"publicKey"`
}

// SSHKey is a public key that Machines can refer to with the property karpenter.metal3.io/ssh-keys. Its owner can then
// log in to their servers. An edit makes the Machines that were installed with it drift: Karpenter replaces them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=sshkeys,shortName=kmk,categories=karpenter-metal3
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Description",type=string,priority=1,JSONPath=`.spec.description`
type SSHKey struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SSHKeySpec `json:"spec"`
	// Status is empty. Clients write an empty one.
	// +optional
	Status *NoStatus `json:"status,omitempty"`
}

// SSHKeyList is a list of SSHKeys.
//
// +kubebuilder:object:root=true
type SSHKeyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SSHKey `json:"items"`
}

// OSImageSpec describes an operating system image.
type OSImageSpec struct {
	// DisplayName is what people call this image.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description of its purpose, for people to read.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// Properties of the image: karpenter.metal3.io/image-url (http, https, or oci with a digest; no server can be
	// installed without it), karpenter.metal3.io/image-checksum and karpenter.metal3.io/image-checksum-type.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('metal3[.].+/image-url$') || ['http://', 'https://', 'oci://'].exists(scheme, self[key].startsWith(scheme) && self[key] != scheme))",message="karpenter.metal3.io/image-url must be an http, https or oci URL"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('metal3[.].+/server-name$'))",message="karpenter.metal3.io/server-name pins one Machine to one server: set it on the Machine, not on an OSImage"
	Properties Properties `json:"properties,omitempty"`
}

// OSImage is an operating system that servers can be provisioned with. An edit changes no running Machine: make a new
// OSImage and point the NodeType at it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=kmi,categories=karpenter-metal3
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.properties.karpenter\.metal3\.io/image-url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OSImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OSImageSpec `json:"spec"`
	// Status is empty. Clients write an empty one.
	// +optional
	Status *NoStatus `json:"status,omitempty"`
}

// OSImageList is a list of OSImages.
//
// +kubebuilder:object:root=true
type OSImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OSImage `json:"items"`
}

// NoStatus is the status of a kind that has none.
type NoStatus struct{}
