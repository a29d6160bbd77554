// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// ChoiceOf describes a host that was claimed long ago as the choice that it would be now, and reports whether the type
// exists. It assumes nothing. A host whose labels say by now that it is of another type stays of that one.
func (i *Inventory) ChoiceOf(host *bmov1alpha1.BareMetalHost, nodeType string) (Choice, bool) {
	i.lock.Lock()
	defer i.lock.Unlock()
	t, known := i.types[nodeType]
	if !known {
		return Choice{}, false
	}
	choice := Choice{
		Host:     v1alpha1.HostReference{Namespace: host.Namespace, Name: host.Name, UID: host.UID},
		NodeType: nodeType, Cost: t.profile.Cost, Labels: maps.Clone(t.labels),
	}
	if h, known := i.hosts[types.NamespacedName{Namespace: host.Namespace, Name: host.Name}]; known {
		if b, member := h.buckets[nodeType]; member {
			choice.Labels = nodeLabels{b.labels, t.labels}.merged()
		}
	}
	return choice, true
}
