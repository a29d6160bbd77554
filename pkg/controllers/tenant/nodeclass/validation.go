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
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/bootstrap"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// Reasons why a class is not ready.
const (
	// ReasonInvalidProperties: a property is not allowed in a class, or does not exist.
	ReasonInvalidProperties = "InvalidProperties"
	// ReasonInvalidKubeletArgs: no kubelet would start with the arguments.
	ReasonInvalidKubeletArgs = "InvalidKubeletArgs"
	// ReasonNoNodeTypes: the NodeProvider has no NodeTypes.
	ReasonNoNodeTypes = "NoNodeTypes"
)

// invalid is why a class cannot be used.
type invalid struct {
	reason, message string
}

func providerNotFound(name string) *invalid {
	return &invalid{v1alpha1.ReasonProviderNotFound, fmt.Sprintf(
		"spec.providerRef names NodeProvider %q, which does not exist in the management cluster: create it, or name another", name)}
}

// validateSpec returns why the properties or the kubelet arguments of a class are not valid, or nil.
func validateSpec(nodeClass *v1alpha1.MetalNodeClass) *invalid {
	for _, key := range slices.Sorted(maps.Keys(nodeClass.Spec.Properties)) {
		// The class of a pinned pool is for one Machine; the TenantCluster was validated for that.
		if _, pool := nodeClass.Labels[v1alpha1.TenantPoolLabelKey]; key == v1alpha1.PropertyServerName && !pool {
			return &invalid{ReasonInvalidProperties, fmt.Sprintf(
				"spec.properties must not hold %s, which pins one Machine to one server: a class is for many Machines, so set it on the Machine", key)}
		}
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return &invalid{ReasonInvalidProperties, fmt.Sprintf(
				"spec.properties holds the key %q, which is not a name like vcluster.com/os-image: %s", key, strings.Join(errs, "; "))}
		}
	}
	if _, err := properties.Merge(properties.OfClass(nodeClass)).OSImage(); err != nil {
		return &invalid{ReasonInvalidProperties, err.Error()}
	}
	if err := bootstrap.CheckKubeletArgs(nodeClass.Spec.KubeletArgs.Strings()); err != nil {
		return &invalid{ReasonInvalidKubeletArgs, "spec.kubeletArgs: " + err.Error()}
	}
	return nil
}

// validateTypes returns why a class cannot use the types of its NodeProvider, or nil. A type without a free server, or
// without any, does not make the class invalid: Karpenter must know the type.
func validateTypes(provider string, types []v1alpha1.NodeType) *invalid {
	for i := range types {
		if types[i].Spec.ProviderRef.Name == provider && types[i].DeletionTimestamp.IsZero() {
			return nil
		}
	}
	return &invalid{ReasonNoNodeTypes, fmt.Sprintf(
		"NodeProvider %q has no NodeTypes: list at least one in its spec.metal3.nodeTypes", provider)}
}
