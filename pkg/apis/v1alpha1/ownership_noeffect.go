// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// Fields without an effect are in structs named NoEffect*, one for each place in a schema, in files *_noeffect.go.
// Their descriptions begin with "No effect:". Package compat decides on each field.

// NoEffectOwnership has the fields for users and teams of the reference's platform. Kubernetes RBAC replaces them here.
type NoEffectOwnership struct {
	// No effect: the owner in the reference, a user or a team. Give it rights by Kubernetes RBAC.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 63 && size(self[key]) <= 253)",message="a key has at most 63 characters, and a value at most 253"
	Owner map[string]string `json:"owner,omitempty"`
	// No effect: rights of users and teams in the reference. Give these rights by Kubernetes RBAC.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Access []AccessRule `json:"access,omitempty"`
}

// AccessRule is a right of users and teams in the reference.
type AccessRule struct {
	// Name of the rule.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Verbs that are allowed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=63
	Verbs []string `json:"verbs,omitempty"`
	// Subresources that the verbs apply to.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=63
	Subresources []string `json:"subresources,omitempty"`
	// Users who have the right.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	Users []string `json:"users,omitempty"`
	// Teams that have the right.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	Teams []string `json:"teams,omitempty"`
}

// NoEffectStatus has the status of a kind that has none.
type NoEffectStatus struct {
	// No effect: clients write an empty status.
	// +optional
	Status *NoStatus `json:"status,omitempty"`
}

// NoStatus is the status of a kind that has none.
type NoStatus struct{}

// Opaque is an object of the reference that has no type here. It is stored as it was written, and only an object is
// accepted.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:validation:MaxProperties=64
// +kubebuilder:pruning:PreserveUnknownFields
type Opaque struct {
	apiextensionsv1.JSON `json:",inline"`
}
