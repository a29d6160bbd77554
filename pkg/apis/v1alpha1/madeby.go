// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Makes returns whether the NodeProvider lists a NodeType and is the owner of it. Without the list, an author of a NodeType could make it
// the NodeProvider's by an owner reference, until the manager deletes it.
func (in *NodeProvider) Makes(nodeType *NodeType) bool {
	return nodeType.Spec.ProviderRef.Name == in.Name && metav1.IsControlledBy(nodeType, in) &&
		slices.ContainsFunc(in.Spec.Metal3.NodeTypes, func(template NodeTypeTemplate) bool { return template.Name == nodeType.Name })
}

// Maker returns the name of the NodeProvider if it makes a NodeType, and else an empty one, for TenantCluster.Allows. A nil one makes none.
func (in *NodeProvider) Maker(nodeType *NodeType) string {
	if in == nil || !in.Makes(nodeType) {
		return ""
	}
	return in.Name
}

// MadeBy returns the name of the NodeProvider that has made the NodeType, empty if the type was made by hand. It is what can be known
// without the NodeProvider: the manager, which gives servers away, asks Makes.
func (in *NodeType) MadeBy() string {
	owner := metav1.GetControllerOf(in)
	if owner == nil || owner.APIVersion != GroupVersion.String() || owner.Kind != "NodeProvider" || owner.Name != in.Spec.ProviderRef.Name {
		return ""
	}
	return owner.Name
}
