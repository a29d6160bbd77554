// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Ownership has the fields of the reference about the users and teams of its platform. They have no effect: who may read and write an
// object is up to Kubernetes RBAC. The webhook warns of them.
type Ownership struct {
	// Owner of the object in the reference: user or team. It has no effect here.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 63 && size(self[key]) <= 253)",message="a key has at most 63 characters, and a value at most 253"
	Owner map[string]string `json:"owner,omitempty"`
	// Access of users and teams in the reference. It has no effect here: give such rights by Kubernetes RBAC.
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
	// Subresources that the verbs are for.
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

// String is the rule in words, for the one who is to write it as a Role.
func (a *AccessRule) String() string {
	text := strings.Join(a.Verbs, ", ")
	if len(a.Subresources) > 0 {
		text += " on " + strings.Join(a.Subresources, ", ")
	}
	text += " for " + strings.Join(slices.Concat(a.Users, a.Teams), ", ")
	if a.Name != "" {
		return fmt.Sprintf("%s: %s", a.Name, text)
	}
	return text
}

// Opaque is an object of the reference that has no meaning here. It is kept as it was written. Each field of this type has to have
// type object in the schema, so that nothing else is stored.
type Opaque = apiextensionsv1.JSON

// NoStatus is the status of a kind that has none. It is there because clients write an empty one.
type NoStatus struct{}
