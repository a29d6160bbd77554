// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineConfigTemplateSpec holds the templates, in the language of Go's text/template with the functions that
// docs/reference-snippets.md lists. In both, .Values has NodeClaim (the Machine), Project (its namespace), Properties,
// SSHKeys (lines for authorized_keys), BareMetalHost, AllocatedIP, PrefixLength and Gateway.
//
// +kubebuilder:validation:XValidation:rule="has(self.cloudInitTemplate) || has(self.networkDataTemplate)",message="give cloudInitTemplate, networkDataTemplate, or both"
type MachineConfigTemplateSpec struct {
	// DisplayName is what people call this template.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description says what the template is for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// CloudInitTemplate makes a document for cloud-init, for the property vcluster.com/user-data-template-config: cloud-config,
	// a script, or a MIME message. SSH keys and the join are further parts of the user data.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=524288
	CloudInitTemplate string `json:"cloudInitTemplate,omitempty"`
	// NetworkDataTemplate makes the network data, for the property vcluster.com/network-data-template-config: either
	// OpenStack network_data or a cloud-init network configuration of version 2.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=524288
	NetworkDataTemplate string `json:"networkDataTemplate,omitempty"`
}

// MachineConfigTemplate is a template of what servers read at their first boot, for Machines to refer to in their
// properties. Editing one changes no running Machine.
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
}

// MachineConfigTemplateList is a list of MachineConfigTemplates.
//
// +kubebuilder:object:root=true
type MachineConfigTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MachineConfigTemplate `json:"items"`
}
