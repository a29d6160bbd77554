// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// nodeEvents lets through what can be a registration: a Node that appears, or gets its provider ID. Nodes change
// all the time, and nothing else about them matters here.
func nodeEvents() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return providerID(e.Object) != "" },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return providerID(e.ObjectOld) != providerID(e.ObjectNew)
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func providerID(object any) string {
	node, ok := object.(*corev1.Node)
	if !ok {
		return ""
	}
	return node.Spec.ProviderID
}
