// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// InvalidType says why a NodeType has no servers: the reason and the message of its condition Synced.
type InvalidType struct{ Reason, Message string }

// AddType adds a NodeType or replaces it. provider is its NodeProvider, nil if there is none. tenant is the name of a
// TenantCluster in the namespace of the provider's servers, empty if there is none. An invalid type has no servers, and
// the result says why; otherwise it is nil.
func (i *Inventory) AddType(nodeType *v1alpha1.NodeType, provider *v1alpha1.NodeProvider, tenant string) *InvalidType {
	profile, invalid := profileOf(nodeType, provider, tenant)
	if invalid != nil {
		i.DeleteType(nodeType.Name)
		return invalid
	}
	i.SetType(profile)
	return nil
}

func profileOf(nodeType *v1alpha1.NodeType, provider *v1alpha1.NodeProvider, tenant string) (Profile, *InvalidType) {
	switch {
	case provider == nil:
		return Profile{}, &InvalidType{v1alpha1.ReasonProviderNotFound, fmt.Sprintf("NodeProvider %s does not exist: "+
			"create it, or delete this NodeType", nodeType.Spec.ProviderRef.Name)}
	case tenant != "":
		return Profile{}, &InvalidType{v1alpha1.ReasonTenantNamespace, fmt.Sprintf("namespace %s of the servers has "+
			"TenantCluster %s, whose provider may read the Secrets there, and so the BMC credentials: no server is used "+
			"before one of the two is in another namespace", provider.Spec.Metal3.ClusterRef.Namespace, tenant)}
	}
	if err := devices.Validate(field.NewPath("devices"), nodeType.Spec.Devices).ToAggregate(); err != nil {
		return Profile{}, &InvalidType{v1alpha1.ReasonInvalidDevices, err.Error()}
	}
	selector, err := capacity.Selector(nodeType.Spec.HostSelector(nodeType, nodeType.Name))
	if err != nil {
		message := fmt.Sprintf("no server is selected: %v: correct it", err)
		return Profile{}, &InvalidType{v1alpha1.ReasonInvalidSelector, message}
	}
	return Profile{
		Name:        nodeType.Name,
		MadeBy:      provider.Maker(nodeType),
		Namespace:   provider.Spec.Metal3.ClusterRef.Namespace,
		Selector:    selector,
		Zone:        nodeType.Spec.Zone,
		Resources:   nodeType.Spec.Resources,
		LeftOut:     nodeType.Spec.LeftOut(),
		Drivers:     nodeType.Spec.Drivers(),
		Undeclared:  nodeType.Undeclared(),
		Server:      capacity.Declared(nodeType),
		Instance:    capacity.InstanceLabels(nodeType),
		AnyTenant:   provider.Spec.Metal3.UncleanedServers == v1alpha1.UncleanedServersAnyTenant,
		Exclusive:   provider.Spec.Metal3.ExclusiveTopology(),
		Cost:        nodeType.EffectiveCost(),
		MaxCapacity: nodeType.Spec.MaxCapacity,
		Properties:  properties.Merge(properties.OfProvider(provider), properties.OfType(nodeType)).Map(),
	}, nil
}
