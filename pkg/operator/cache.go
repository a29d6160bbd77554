// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// probeTimeout is how long a readiness probe waits for caches that are not synced.
const probeTimeout = time.Second

// TrimObject is a transform for caches. It drops the bookkeeping of server-side apply and kubectl, which no program
// here reads: it can be half of an object, and kubectl's is a copy of all of it, in Secrets too.
func TrimObject(object any) (any, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object, nil // a tombstone: there is nothing to trim
	}
	accessor.SetManagedFields(nil)
	if annotations := accessor.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		accessor.SetAnnotations(annotations)
	}
	return object, nil
}

// TrimAlso is TrimObject for a cache of one kind, of which something more can be dropped.
func TrimAlso[T any](trim func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if typed, ok := object.(T); ok {
			trim(typed)
		}
		return TrimObject(object)
	}
}

// CacheSynced is a readiness probe that fails until the caches have everything that was there at the start.
func CacheSynced(caches interface{ WaitForCacheSync(context.Context) bool }) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), probeTimeout)
		defer cancel()
		if !caches.WaitForCacheSync(ctx) {
			return errors.New("caches are not synced yet")
		}
		return nil
	}
}
