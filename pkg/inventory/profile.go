// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/properties"
)

// Profile is what the inventory knows of a NodeType.
type Profile struct {
	// Name of the NodeType.
	Name string
	// Provider is the name of its NodeProvider.
	Provider string
	// Namespace of its BareMetalHosts.
	Namespace string
	// Selector over the labels of the BareMetalHosts. Nil selects none.
	Selector labels.Selector
	// Zone of all its servers; the hosts' own if empty.
	Zone string
	// Resources of one server.
	Resources corev1.ResourceList
	// Drivers are the DRA drivers that publish devices on one server, sorted.
	Drivers []string
	// Allocatable is what of the resources is there for pods.
	Allocatable corev1.ResourceList
	// Cost of one server, relative and without a unit.
	Cost int64
	// MaxCapacity is the greatest number of servers claimed as this type at a time; nil is no limit.
	MaxCapacity *int32
	// Properties, merged of those of the NodeProvider and those of the NodeType.
	Properties map[string]string
}

// ProfileOf returns what the inventory needs to know of a type. The error says which part of the selector is wrong.
func ProfileOf(nodeType *v1alpha1.NodeType, provider *v1alpha1.NodeProvider) (Profile, error) {
	selector, err := capacity.Selector(nodeType.Spec.BareMetalHosts.Selector)
	if err != nil {
		return Profile{}, err
	}
	return Profile{
		Name:        nodeType.Name,
		Provider:    provider.Name,
		Namespace:   provider.Spec.Metal3.ClusterRef.Namespace,
		Selector:    selector,
		Zone:        nodeType.Spec.Zone,
		Resources:   nodeType.Spec.Resources,
		Drivers:     nodeType.Spec.Drivers(),
		Allocatable: capacity.Allocatable(&nodeType.Spec.HardwareProfile),
		Cost:        nodeType.Spec.EffectiveCost(),
		MaxCapacity: nodeType.Spec.MaxCapacity,
		Properties:  properties.Merge(properties.OfProvider(provider), properties.OfType(nodeType)).Map(),
	}, nil
}

// matched is what a request is compared with.
func (p Profile) matched() matching.Type {
	return matching.Type{Name: p.Name, Provider: p.Provider, Resources: p.Resources, Allocatable: p.Allocatable, Drivers: p.Drivers}
}

// equal tells whether two profiles are the same. Selectors are compared by what they say.
func (p Profile) equal(other Profile) bool {
	return selectorString(p.Selector) == selectorString(other.Selector) &&
		equality.Semantic.DeepEqual(p.withoutSelector(), other.withoutSelector())
}

func (p Profile) withoutSelector() Profile {
	p.Selector = labels.Nothing() // comparing nil selectors panics
	return p
}

func selectorString(selector labels.Selector) string {
	if selector == nil {
		return ""
	}
	return "selector " + selector.String() // so that the empty selector differs from none
}

func (p Profile) selects(h *host) bool {
	return p.Selector != nil && h.key.Namespace == p.Namespace && p.Selector.Matches(labels.Set(h.labels))
}
