// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers has what the controllers of the manager and of the provider share.
package controllers

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// ConflictRetry is the delay before the next look at an object that has changed since the cache saw it.
	ConflictRetry = time.Second
	// Concurrency is how many objects a controller reconciles at a time.
	Concurrency = 10
	// CacheSyncTimeout is for controllers of kinds that an API server need not serve from the start. With the default of
	// two minutes the whole process would end, and all other controllers with it.
	CacheSyncTimeout = 24 * time.Hour
)

// RetryConflict turns the error of a write into the result of a Reconcile. A conflict, or an object that exists already,
// is another client's write that the cache does not show yet: it is retried and not logged as an error.
func RetryConflict(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: ConflictRetry}, nil
	}
	return reconcile.Result{}, err
}

// IsGone returns whether an error means that the object does not exist. A server that does not serve the kind, or not
// in this version, also returns 404, which does not mean that.
func IsGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// Requests returns a request for each object that a cache lists. An error is logged: a handler of watches cannot return
// it.
func Requests(ctx context.Context, reader client.Reader, list client.ObjectList, opts ...client.ListOption) []reconcile.Request {
	return RequestsWhere(ctx, reader, list, func(client.Object) bool { return true }, opts...)
}

// RequestsWhere returns the requests for those objects for which holds is true. It must not change them.
func RequestsWhere(ctx context.Context, reader client.Reader, list client.ObjectList, holds func(client.Object) bool,
	opts ...client.ListOption) []reconcile.Request {
	var requests []reconcile.Request
	err := reader.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...)
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok && holds(object) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
			}
			return nil
		})
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "listing the objects to reconcile", "list", fmt.Sprintf("%T", list))
	}
	return requests
}

// OnlyDeletions lets the events of deletions through.
func OnlyDeletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
