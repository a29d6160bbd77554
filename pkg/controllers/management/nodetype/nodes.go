// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetype

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
)

// nodes caches the nodes that Machines report for each type, by the name of the type, until a joined Machine of the
// type comes, goes or changes. A type may have ten thousand Machines, and its counts change with each claim.
type nodes struct{ byType sync.Map }

// known is the cached nodes of a type, with the fields of the type that they depend on.
type known struct {
	capacity.Nodes
	generation int64
	resources  corev1.ResourceList
	disk       *resource.Quantity
}

// ofMachine maps a joined Machine to its type, and drops the cache of that type.
func (n *nodes) ofMachine(_ context.Context, machine *v1alpha1.Machine) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range JoinedAs(machine) {
		n.byType.Delete(name)
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return requests
}

// get returns the nodes that the reader's Machines report for a type. The caller must not change them.
func (n *nodes) get(ctx context.Context, reader client.Reader, nodeType *v1alpha1.NodeType) (capacity.Nodes, error) {
	now := &known{generation: nodeType.Generation, resources: nodeType.Status.Resources, disk: nodeType.Status.EphemeralStorage}
	if stored, found := n.byType.Load(nodeType.Name); found {
		if before, _ := stored.(*known); before.generation == now.generation &&
			equality.Semantic.DeepEqual(before.resources, now.resources) && equality.Semantic.DeepEqual(before.disk, now.disk) {
			return before.Nodes, nil
		}
	}
	n.byType.Store(nodeType.Name, now) // before it is complete: a Machine that changes meanwhile deletes it again
	machines := &v1alpha1.MachineList{}
	if err := reader.List(ctx, machines, client.MatchingFields{JoinedField: nodeType.Name}, client.UnsafeDisableDeepCopy); err != nil {
		n.byType.Delete(nodeType.Name)
		return capacity.Nodes{}, fmt.Errorf("listing Machines of NodeType %s, %w", nodeType.Name, err)
	}
	now.Nodes = capacity.NodesOf(nodeType, machines.Items)
	return now.Nodes, nil
}
