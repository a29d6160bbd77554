// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ConflictRetry is when to look again at an object that has changed since the cache saw it.
const ConflictRetry = time.Second

// RetryConflict is what a Reconcile returns after a write. It takes a conflict for what it is, somebody else's write that
// the cache does not show yet, and every other error for an error.
func RetryConflict(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: ConflictRetry}, nil
	}
	return reconcile.Result{}, err
}
