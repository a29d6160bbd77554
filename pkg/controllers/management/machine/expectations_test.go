// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/faults"
)

// TestExpectationsSaveWrites: a Machine is reconciled again while the cache shows it as it was before it was claimed.
func TestExpectationsSaveWrites(t *testing.T) {
	w := newFixture(t, 2)
	key := w.machine("m", nil)
	old, connection := w.get(key), &faults.Connection{}
	behind := false
	cache := interceptor.NewClient(connection.Client(w.api.Client), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if machine, ok := object.(*v1alpha1.Machine); ok && behind {
				old.DeepCopyInto(machine)
				return nil
			}
			return c.Get(ctx, name, object, options...)
		},
	})
	manager := w.startWith(cache, w.client)
	manager.round()
	writes := len(connection.Writes())
	if writes != 4 {
		t.Errorf("a claim has %d writes: %v; want the choice with the finalizer, the claim, that it is done, and its record", writes,
			connection.Writes())
	}
	behind = true
	result, err := manager.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter == 0 || len(connection.Writes()) != writes {
		t.Errorf("%v, %v, %d writes more; want none, and another look soon", result, err, len(connection.Writes())-writes)
	}
}
