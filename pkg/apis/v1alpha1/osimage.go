// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OSImageSpec describes an operating system image.
type OSImageSpec struct {
	// DisplayName is what people call this image.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	DisplayName string `json:"displayName,omitempty"`
	// Properties of the image: metal3.vcluster.com/image-url (required, http or https),
	// metal3.vcluster.com/image-checksum and metal3.vcluster.com/image-checksum-type.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="'metal3.vcluster.com/image-url' in self && self['metal3.vcluster.com/image-url'].matches('^https?://.+')",message="properties must hold metal3.vcluster.com/image-url with an http or https URL"
	// +kubebuilder:validation:XValidation:rule="!('metal3.vcluster.com/server-name' in self)",message="metal3.vcluster.com/server-name pins one Machine to one server: set it on the Machine, not on an OSImage"
	Properties map[string]string `json:"properties"`
}

// OSImage is an operating system that servers can be provisioned with. Editing one changes no running Machine: make
// a new one and point the NodeType at it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=kmi,categories=karpenter-metal3
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.properties.metal3\.vcluster\.com/image-url`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OSImage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OSImageSpec `json:"spec"`
}

// OSImageList is a list of OSImages.
//
// +kubebuilder:object:root=true
type OSImageList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []OSImage `json:"items"`
}
