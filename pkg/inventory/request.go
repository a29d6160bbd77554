// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/matching"
)

// Request asks for one host, either of a named type, or of the cheapest type that meets requirements and resources.
type Request struct {
	// Machine that the host is for. The host that has been assumed for it counts as free. Empty for no Machine in particular.
	Machine types.UID
	// NodeType by name. If set, neither the resources nor the rule about accelerators apply: an explicitly named type wins.
	NodeType string
	// Requirements that the labels of the node would have to meet.
	Requirements []corev1.NodeSelectorRequirement
	// Resources that the node must have for pods.
	Resources corev1.ResourceList
	// KubeletArgs of the node. Which of them are wrong is said elsewhere.
	KubeletArgs v1alpha1.KubeletArgs
	// Drivers are the DRA drivers whose devices are requested.
	Drivers []string
	// Allowed is whether the tenant may have a type of a provider. Nil allows all. It is called with the inventory
	// locked and must not call the inventory.
	Allowed func(typeName, provider string) bool
	// ChosenHost and ChosenAs are a host and the type that it was chosen as for the Machine before, by a run that did not come
	// to know whether it could have it. It is chosen again if it still fits, also if it cannot be had, so that no other is
	// claimed meanwhile. Empty for none.
	ChosenHost v1alpha1.HostReference
	ChosenAs   string
	// ServerName pins the request to the host of that name, in the namespace of the type's provider. No other is given.
	ServerName string
}

// requirements are parsed requirements.
type requirements struct {
	// ofType are about labels that all hosts of a type share, ofHost about those that differ from host to host.
	ofType, ofHost []labels.Requirement
}

func (r *Request) matched() *matching.Request {
	kubelet, _ := capacity.ParseKubelet(r.KubeletArgs)
	return &matching.Request{NodeType: r.NodeType, Resources: r.Resources, Kubelet: kubelet, Drivers: r.Drivers, Allowed: r.Allowed}
}

func (i *Inventory) parse(from []corev1.NodeSelectorRequirement) (requirements, error) {
	valid, wrong := matching.Requirements(field.NewPath("spec", "requirements"), from)
	if len(wrong) > 0 {
		return requirements{}, &NoHostError{Reason: v1alpha1.ReasonInvalidSpec, Detail: wrong.ToAggregate().Error() + ": correct it"}
	}
	parsed := requirements{}
	for _, one := range valid {
		if i.differs(one.Key()) {
			parsed.ofHost = append(parsed.ofHost, one)
		} else {
			parsed.ofType = append(parsed.ofType, one)
		}
	}
	return parsed, nil
}

// differs returns whether a label differs from host to host of one type.
func (i *Inventory) differs(key string) bool {
	return key == corev1.LabelTopologyZone || key == corev1.LabelArchStable || slices.Contains(i.topology, key)
}
