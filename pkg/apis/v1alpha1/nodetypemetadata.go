// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"
)

// NodeTypeMetadata are the labels and annotations of a NodeType. Its nodes do not get them. Those in the domains karpenter.metal3.io,
// kubernetes.io and k8s.io are not applied: they have a meaning for the manager, the webhook or kubectl.
type NodeTypeMetadata struct {
	// Labels of the NodeType.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the NodeType.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// IsReservedMetadata returns whether a label or an annotation has a meaning for others, so that a NodeProvider does not write it.
func IsReservedMetadata(key string) bool { return InDomain(key, Group, "kubernetes.io", "k8s.io") }

// InDomain returns whether the key of a label or an annotation is in one of the domains, or in one below.
func InDomain(key string, domains ...string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return qualified && slices.ContainsFunc(domains, func(parent string) bool {
		return domain == parent || strings.HasSuffix(domain, "."+parent)
	})
}
