// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers has what the controllers of the manager and of the provider share.
package controllers

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// IsGone returns whether an error says that one object does not exist. A server that does not serve the kind, or not in
// this version, also answers 404, and then nothing is known of the object.
func IsGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}
