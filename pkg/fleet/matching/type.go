// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package matching decides whether a NodeType fits a request, and returns the reasons as values that callers format.
// The manager, the webhook and the provider use it for Machines, NodePools and pods. It needs no client and no
// BareMetalHost.
package matching

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// Type is what a request is compared with: what all servers of a NodeType have in common.
type Type struct {
	// Name of the NodeType, and of its NodeProvider.
	Name, Provider string
	// Server is what each of them has at least.
	Server capacity.Server
	// Drivers are the DRA drivers that publish devices on one server, sorted.
	Drivers []string
	// allocatable is what a kubelet without arguments leaves of the server.
	allocatable corev1.ResourceList
}

// NewType returns a type that is compared with many requests. Most of them have no arguments for the kubelet.
func NewType(name, provider string, server capacity.Server, drivers []string) Type {
	return Type{Name: name, Provider: provider, Server: server, Drivers: drivers, allocatable: capacity.Kubelet{}.Allocatable(server)}
}

// TypeOf describes a NodeType.
func TypeOf(nodeType *v1alpha1.NodeType) Type {
	return NewType(nodeType.Name, nodeType.Spec.ProviderRef.Name, capacity.ServerOf(nodeType), nodeType.Spec.Drivers())
}

// Request is what a node must have.
type Request struct {
	// NodeType by name. If set, neither the resources nor the accelerators are compared: an explicitly named type wins.
	NodeType string
	// Resources that the node must have for pods.
	Resources corev1.ResourceList
	// Kubelet of the node.
	Kubelet capacity.Kubelet
	// Drivers are the DRA drivers whose devices are requested.
	Drivers []string
	// Allowed is whether the tenant may have a type of a provider. Nil allows all.
	Allowed func(nodeType, provider string) bool
}

// Reason why a type does not fit a request.
type Reason string

// Reasons, in the order in which they are looked for.
const (
	// Fits: nothing speaks against the type.
	Fits Reason = ""
	// TooSmall: the type has too little of a resource, or none of it.
	TooSmall Reason = "TooSmall"
	// Accelerated: the type has accelerators, and the request has none of them.
	Accelerated Reason = "Accelerated"
	// NotAllowed: the tenant may not have the type.
	NotAllowed Reason = "NotAllowed"
)

// Mismatch is why a type does not fit. The zero Mismatch is that of a type that fits.
type Mismatch struct {
	Reason Reason
	// Short are the resources of which there is not enough, by name. With TooSmall.
	Short []Shortage
	// Accelerators of the type: resources, then drivers. With Accelerated.
	Accelerators []string
}

// Shortage is a resource of which a type has less for pods than a request asks for.
type Shortage struct {
	Name       corev1.ResourceName
	Asked, Has resource.Quantity
	// Missing is true if the type does not have the resource at all.
	Missing bool
}

// Check compares the type with a request. Labels are not compared: see Offered.
func (t *Type) Check(request *Request) Mismatch {
	if request.NodeType == "" {
		if short := t.short(request); len(short) > 0 {
			return Mismatch{Reason: TooSmall, Short: short}
		}
		if !v1alpha1.AsksForAccelerator(request.Resources, t.Server.Resources) && !v1alpha1.AsksForDriver(request.Drivers, t.Drivers) {
			if all := t.Accelerators(); len(all) > 0 {
				return Mismatch{Reason: Accelerated, Accelerators: all}
			}
		}
	}
	if request.Allowed != nil && !request.Allowed(t.Name, t.Provider) {
		return Mismatch{Reason: NotAllowed}
	}
	return Mismatch{}
}

// Accelerators of one server by name: resources, then drivers of devices.
func (t *Type) Accelerators() []string {
	var all []string
	for _, name := range v1alpha1.Accelerators(t.Server.Resources) {
		all = append(all, string(name))
	}
	return append(all, t.Drivers...)
}

// short are the resources of which there is not enough. The number of pods is not compared with a type that does not mention
// it: the kubelet knows it.
func (t *Type) short(request *Request) (short []Shortage) {
	allocatable := t.allocatable
	if !request.Kubelet.IsDefault() {
		allocatable = request.Kubelet.Allocatable(t.Server)
	}
	for name, asked := range request.Resources {
		has, named := allocatable[name]
		if !named && name == corev1.ResourcePods || asked.Cmp(has) <= 0 {
			continue
		}
		short = append(short, Shortage{Name: name, Asked: asked, Has: has, Missing: !named})
	}
	slices.SortFunc(short, func(a, b Shortage) int { return cmp.Compare(a.Name, b.Name) })
	return short
}

// Describe says in a clause why the type does not fit: "too small: asks memory 512Gi, has 256Gi". It is empty for a type
// that fits. The asker is what made the request: a pod or a Machine.
func (m Mismatch) Describe(asker string) string {
	switch m.Reason {
	case TooSmall:
		var missing, small []string
		for _, one := range m.Short {
			if one.Missing {
				missing = append(missing, string(one.Name))
			} else {
				small = append(small, fmt.Sprintf("asks %s %s, has %s", one.Name, one.Asked.String(), one.Has.String()))
			}
		}
		if len(missing) > 0 {
			return "has no " + strings.Join(missing, ", ")
		}
		return "too small: " + strings.Join(small, " and ")
	case Accelerated:
		return fmt.Sprintf("has accelerators (%s) and the %s requests none of them", strings.Join(m.Accelerators, ", "), asker)
	case NotAllowed:
		return "not allowed for this tenant"
	}
	return ""
}
