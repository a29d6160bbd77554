// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	funcs "sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

// TestWrites makes writes of a NodeClaim as core makes them, and looks at which of them reach the API server.
func TestWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*karpv1.NodeClaim)
		// metadata and status are whether the patch of each is sent.
		metadata, status bool
	}{
		"NotKnownYet": {"core's disruption controller fills in the conditions of a new NodeClaim: nothing is known",
			func(n *karpv1.NodeClaim) { n.StatusConditions() }, false, false},
		"Launched": {"of the metadata nothing has changed",
			func(n *karpv1.NodeClaim) { n.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched) }, false, true},
		"LaunchedWithLabels": {"both have changed", func(n *karpv1.NodeClaim) {
			n.Labels = map[string]string{"zone": "a"}
			n.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
		}, true, true},
		"LaunchFails": {"why a launch takes long is something to know", func(n *karpv1.NodeClaim) {
			n.StatusConditions().SetUnknownWithReason(karpv1.ConditionTypeLaunched, "LaunchFailed", "no answer")
		}, false, true},
		"ProviderID": {"the conditions are not known, but the server is", func(n *karpv1.NodeClaim) {
			n.StatusConditions()
			n.Status.ProviderID = "metal3://a/b/c"
		}, false, true},
		"Drifted": {"one condition is known, beside those that are not",
			func(n *karpv1.NodeClaim) { n.StatusConditions().SetTrue(karpv1.ConditionTypeDrifted) }, false, true},
		"Finalizer": {"of the status nothing is sent that could be looked at", func(n *karpv1.NodeClaim) { n.Finalizers = nil }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			for write, want := range map[string]bool{"metadata": tc.metadata, "status": tc.status} {
				for _, lock := range []client.MergeFromOption{client.MergeFromWithOptimisticLock{}, noLock{}} {
					_, locked := lock.(client.MergeFromWithOptimisticLock)
					if got := sent(t, write, tc.change, lock); got != (want || write == "metadata" && locked) {
						t.Errorf("%s: the patch of the %s, locked %v, is sent: %v", tc.reason, write, locked, got)
					}
				}
			}
		})
	}
}

type noLock struct{}

func (noLock) ApplyToMergeFrom(*client.MergeFromOptions) {}

// sent returns whether a patch of the metadata or of the status of a new NodeClaim reaches the API server.
func sent(t *testing.T, write string, change func(*karpv1.NodeClaim), lock client.MergeFromOption) (sent bool) {
	t.Helper()
	api := funcs.NewClient(fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&karpv1.NodeClaim{}).Build(), funcs.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			sent = true
			return c.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			sent = true
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		},
	})
	core := interceptor.NewClient(api, interceptor.OnCreate(Finalizer), Unchanged(), Unknown())
	nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if err := core.Create(t.Context(), nodeClaim); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(nodeClaim.Finalizers, karpv1.TerminationFinalizer) {
		t.Fatal("the NodeClaim has no finalizer")
	}
	stored := nodeClaim.DeepCopy()
	change(nodeClaim)
	patch, writer := client.MergeFromWithOptions(stored, lock), core.Patch
	if write == "status" {
		writer = func(ctx context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
			return core.Status().Patch(ctx, object, patch)
		}
	}
	if err := writer(t.Context(), nodeClaim, patch); err != nil {
		t.Fatal(err)
	}
	return sent
}
