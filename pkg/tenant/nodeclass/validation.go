// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/properties"
)

// Reasons why a class is not ready.
const (
	// ReasonInvalidProperties: a property has no business in a class, or is not a property.
	ReasonInvalidProperties = "InvalidProperties"
	// ReasonNoNodeTypes: the NodeProvider has no NodeTypes.
	ReasonNoNodeTypes = "NoNodeTypes"
)

// problem is what is wrong with a class, in one word and in one sentence.
type problem struct {
	reason, message string
}

func providerNotFound(name string) *problem {
	return &problem{v1alpha1.ReasonProviderNotFound, fmt.Sprintf(
		"spec.providerRef names NodeProvider %q, which does not exist in the management cluster: create it, or name another", name)}
}

// validateProperties returns what is wrong with the properties of a class, or nil.
func validateProperties(nodeClass *v1alpha1.MetalNodeClass) *problem {
	for _, key := range slices.Sorted(maps.Keys(nodeClass.Spec.Properties)) {
		// The class of a pinned pool is that of one Machine; the TenantCluster's author has been held to that.
		if _, pool := nodeClass.Labels[v1alpha1.TenantPoolLabelKey]; key == v1alpha1.PropertyServerName && !pool {
			return &problem{ReasonInvalidProperties, fmt.Sprintf(
				"spec.properties must not hold %s, which pins one Machine to one server: a class is for many Machines, so set it on the Machine", key)}
		}
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return &problem{ReasonInvalidProperties, fmt.Sprintf(
				"spec.properties holds the key %q, which is not a name like vcluster.com/os-image: %s", key, strings.Join(errs, "; "))}
		}
	}
	if _, err := properties.Merge(properties.OfClass(nodeClass)).OSImage(); err != nil {
		return &problem{ReasonInvalidProperties, err.Error()}
	}
	return nil
}

// validateTypes returns what is wrong with the types of a class's NodeProvider, or nil. A type without a free server,
// or without any, is no problem of the class: Karpenter must know of it.
func validateTypes(provider string, types []v1alpha1.NodeType) *problem {
	for i := range types {
		if types[i].Spec.ProviderRef.Name == provider && types[i].DeletionTimestamp.IsZero() {
			return nil
		}
	}
	return &problem{ReasonNoNodeTypes, fmt.Sprintf(
		"NodeProvider %q has no NodeTypes: list at least one in its spec.metal3.nodeTypes", provider)}
}
