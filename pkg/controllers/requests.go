// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Requests returns a request for each object that a cache lists. An error is logged: a handler of watches has nobody to
// return it to.
func Requests(ctx context.Context, reader client.Reader, list client.ObjectList, opts ...client.ListOption) []reconcile.Request {
	var requests []reconcile.Request
	err := reader.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...)
	if err == nil {
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
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
