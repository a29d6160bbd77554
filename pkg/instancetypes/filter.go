// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package instancetypes

import (
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// Filter narrows down the types of a catalog, and has the kubelet of their nodes.
type Filter struct {
	tenant   *v1alpha1.TenantCluster
	provider string
	kubelet  capacity.Kubelet
}

// NewFilter lets the types pass that the tenant may have and that the class offers. Either may be nil, which narrows
// nothing down.
func NewFilter(tenant *v1alpha1.TenantCluster, class *v1alpha1.MetalNodeClass) Filter {
	if class == nil {
		return Filter{tenant: tenant}
	}
	kubelet, _ := capacity.ParseKubelet(class.Spec.KubeletArgs) // a class with wrong ones is not ready
	filter := Filter{tenant: tenant, kubelet: kubelet}
	if class.Spec.ProviderRef != nil {
		filter.provider = class.Spec.ProviderRef.Name
	}
	return filter
}

// Allows returns whether a type of a provider passes.
func (f Filter) Allows(nodeType, provider string) bool {
	if f.provider != "" && f.provider != provider {
		return false
	}
	return f.tenant == nil || f.tenant.Allows(nodeType, provider)
}
