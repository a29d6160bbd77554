// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reasonEvicted is the reason of the event that kube-controller-manager writes on a pod that it deletes for a taint of its node.
const reasonEvicted = "TaintManagerEviction"

// RecreatingEvicted returns a client that does what a ReplicaSet does: a pod that it has created and that kube-controller-manager has
// evicted is created again when the pod is read. Karpenter takes the taint karpenter.sh/unregistered from a node that has registered,
// and kube-scheduler binds the pod. If kube-controller-manager sees the pod before it sees the node without the taint, it deletes the
// pod (kubernetes/kubernetes#139992): on busy cores it does.
func RecreatingEvicted(c client.WithWatch) client.WithWatch {
	return &recreating{WithWatch: c, created: map[client.ObjectKey]*corev1.Pod{}, seen: map[types.UID]int32{}}
}

// recreating is compared as a pointer: tests have maps of clients.
type recreating struct {
	client.WithWatch
	lock    sync.Mutex
	created map[client.ObjectKey]*corev1.Pod
	// seen is the count of an event, by its UID, for which a pod was created again.
	seen map[types.UID]int32
}

// Create implements client.Client.
func (r *recreating) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	err := r.WithWatch.Create(ctx, object, options...)
	if pod, ok := object.(*corev1.Pod); ok && err == nil {
		r.lock.Lock()
		defer r.lock.Unlock()
		r.created[client.ObjectKeyFromObject(pod)] = pod.DeepCopy()
	}
	return err
}

// Get implements client.Client.
func (r *recreating) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.WithWatch.Get(ctx, key, object, options...)
	pod, ok := object.(*corev1.Pod)
	if !ok || !apierrors.IsNotFound(err) {
		return err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	before, events := r.created[key], &corev1.EventList{}
	if before == nil || r.List(ctx, events, client.InNamespace(key.Namespace)) != nil {
		return err
	}
	for _, event := range events.Items {
		// The event names the pod, and not its UID.
		if event.Reason != reasonEvicted || event.InvolvedObject.Name != key.Name || event.Count <= r.seen[event.UID] ||
			event.LastTimestamp.Before(&before.CreationTimestamp) {
			continue
		}
		r.seen[event.UID] = event.Count
		before.DeepCopyInto(pod)
		pod.ResourceVersion, pod.UID, pod.ManagedFields = "", "", nil
		if err := r.WithWatch.Create(ctx, pod); err != nil {
			return err
		}
		r.created[key] = pod.DeepCopy()
		return nil
	}
	return err
}
