// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package autonodes

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// TestProfilesOfPools: the profile of a pool is a label of its NodePool. Its template does not change, so that nothing drifts.
func TestProfilesOfPools(t *testing.T) {
	cluster := start(t)
	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: profiled, quantity: 2}]}]")
	if got := condition(t, cluster); got.Status != metav1.ConditionTrue {
		t.Fatalf("PoolsSynced is %s: %s", got.Status, got.Message)
	}
	plain := nodePool(t, "profiled")
	if len(plain.Labels) != 1 {
		t.Errorf("a NodePool without a profile has the labels %v", plain.Labels)
	}
	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: profiled, quantity: 2, profile: "+cluster.Namespace+"}]}]")
	if got := condition(t, cluster); got.Reason != v1alpha1.ReasonInvalidPools ||
		!strings.Contains(got.Message, `autoNodes[0].static[0] (profiled): there is no NodeProfile "`+cluster.Namespace+`": create it`) {
		t.Errorf("PoolsSynced is %s: %s", got.Reason, got.Message)
	}
	profile := &v1alpha1.NodeProfile{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace}}
	if err := environment.Client.Create(t.Context(), profile); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(environment.Client.Delete(context.Background(), profile)); err != nil {
			t.Error(err)
		}
	})
	label := func(want string) {
		t.Helper()
		tenanttest.Eventually(t, "the NodePool's profile is "+want, func(ctx context.Context) (bool, error) {
			pool := &karpv1.NodePool{}
			err := environment.Client.Get(ctx, client.ObjectKey{Name: "profiled"}, pool)
			return v1alpha1.NodeProfileOf(pool.Labels) == want, err
		})
	}
	label(profile.Name)
	pool := nodePool(t, "profiled")
	if pool.Hash() != plain.Hash() || pool.Generation != plain.Generation {
		t.Errorf("the NodePool has the hash %s and had %s: its nodes drift", pool.Hash(), plain.Hash())
	}
	before := pool.DeepCopy()
	pool.Labels[v1alpha1.NodeProfileLabelKey] = "another"
	if err := environment.Client.Patch(t.Context(), pool, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	label(profile.Name)
	setAutoNodes(t, cluster, "[{provider: metal3, static: [{name: profiled, quantity: 2}]}]")
	label("")
	if again := nodePool(t, "profiled"); again.Hash() != plain.Hash() || again.Generation != plain.Generation {
		t.Errorf("without a profile again, the NodePool is another one: %+v", again)
	}
}
