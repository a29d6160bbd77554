// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// Priorities in the queue of the controller. A Machine that has no server holds up its tenant: Karpenter launches nothing
// else for the pod meanwhile; installing takes minutes anyway. So in a burst all Machines have their servers before the
// first of them costs the many writes and reconciles of an installation.
const (
	withoutServer = 1
	withServer    = 0
)

// urgency is the priority of a Machine.
func urgency(machine *v1alpha1.Machine) int {
	if machine.Status.HostRef != nil {
		return withServer
	}
	return withoutServer
}

// claimsFirst moves new Machines before those that have a server already.
func claimsFirst() handler.EventHandler {
	return handler.Funcs{CreateFunc: func(_ context.Context, created event.CreateEvent, waiting queue) {
		if machine, ok := created.Object.(*v1alpha1.Machine); ok && !created.IsInInitialList {
			enqueue(waiting, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(machine)}, urgency(machine))
		}
	}}
}

// enqueue adds a request with a priority, to a queue that has any.
func enqueue(waiting queue, request reconcile.Request, priority int) {
	if ordered, ok := waiting.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		ordered.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	waiting.Add(request)
}
