// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

const classKind = "MetalNodeClass"

// refersTo returns whether a NodeClaim refers to the class of that name.
func refersTo(nodeClaim *karpv1.NodeClaim, class string) bool {
	ref := nodeClaim.Spec.NodeClassRef
	return ref != nil && ref.Group == v1alpha1.Group && ref.Kind == classKind && ref.Name == class
}

// classOf maps a NodeClaim to its class.
func classOf(_ context.Context, object client.Object) []reconcile.Request {
	nodeClaim, ok := object.(*karpv1.NodeClaim)
	if !ok || nodeClaim.Spec.NodeClassRef == nil || !refersTo(nodeClaim, nodeClaim.Spec.NodeClassRef.Name) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: nodeClaim.Spec.NodeClassRef.Name}}}
}

// deletions selects only the events of deletions.
func deletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// allClasses returns a request for every class of the tenant. There are few of them.
func (c *Controller) allClasses(ctx context.Context) []reconcile.Request {
	classes := &v1alpha1.MetalNodeClassList{}
	if err := c.clusters.Tenant.Client.List(ctx, classes); err != nil {
		// The periodic validation does it later.
		log.FromContext(ctx).Error(err, "listing MetalNodeClasses")
		return nil
	}
	var requests []reconcile.Request
	for i := range classes.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&classes.Items[i])})
	}
	return requests
}
