// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SSHKeySpec describes the public half of an SSH key.
type SSHKeySpec struct {
	// DisplayName is what people call this key.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Description says whose key it is and what it is for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// PublicKey is one line in the format of authorized_keys: type, key, and a comment if you like. A Machine that
	// refers to a key that cannot be read gets no server.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="!self.contains('PRIVATE KEY')",message="publicKey holds a private key: give the public one (the file that ends in .pub), and do not use this key pair any more"
	PublicKey string `json:"publicKey"`
}

// SSHKey is a public key that Machines can refer to with the property vcluster.com/ssh-keys, so that its owner can
// log in to their servers. Editing one changes no running Machine.
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
}

// SSHKeyList is a list of SSHKeys.
//
// +kubebuilder:object:root=true
type SSHKeyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SSHKey `json:"items"`
}
