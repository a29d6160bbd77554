// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// TestTypesAreNotCopied: from the claim to the release, no look at a Machine copies its NodeType out of the cache. A copy has the counts of
// each rack, and a fleet that is ten times as big has ten times as many.
func TestTypesAreNotCopied(t *testing.T) {
	w := newFixture(t, 1)
	reads, copies := 0, 0
	connection := interceptor.NewClient(w.api.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ok := object.(*v1alpha1.NodeType); ok {
				reads++
				if !ptr.Deref((&client.GetOptions{}).ApplyOptions(options).UnsafeDisableDeepCopy, false) {
					copies++
				}
			}
			return c.Get(ctx, key, object, options...)
		}})
	p := w.start(connection)
	key := w.machine("m", func(machine *v1alpha1.Machine) { standAlone(machine) })
	running := func() *process { return p }
	w.until("it is provisioned", running, func() bool { return w.get(key).Status.Phase == v1alpha1.MachineProvisioned })
	if err := w.client.Delete(t.Context(), w.get(key)); err != nil {
		t.Fatal(err)
	}
	w.until("it is released", running, func() bool { return w.get(key) == nil })
	if reads == 0 || copies > 0 {
		t.Errorf("NodeTypes are read %d times, and copied %d times", reads, copies)
	}
}
