// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/tenanttest"
)

// TestGraceEndsOnce: a server that is not requested again within the grace period does not count as missing any more,
// also if no node is deleted at once, because of the budget's schedule or a PodDisruptionBudget.
func TestGraceEndsOnce(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	dynamic, nodeClaim, _ := drifted(t, cluster.Namespace, cluster.Name)
	nodePool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: dynamic.Name + "-static"}, Spec: *dynamic.Spec.DeepCopy()}
	nodePool.Spec.Replicas = ptr.To(int64(3))
	if err := environment.Client.Create(t.Context(), nodePool); err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
	l := newReplacements(Dependencies{Client: environment.Client,
		Clusters: tenanttest.ClustersOf(cluster, environment.Client, environment.Client), Clock: clk}, nil, nil)
	gone := &karpv1.NodeClaim{}
	gone.Name, gone.UID = "gone", types.UID("gone")
	if err := l.add(t.Context(), nodePool, nil, gone); err != nil {
		t.Fatal(err)
	}
	missing := func() int {
		t.Helper()
		_, left, err := l.open(t.Context(), nodePool.Name)
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	}
	clk.Step(time.Minute)
	if got := missing(); got != 1 {
		t.Fatalf("%d nodes are missing, want the one that is gone", got)
	}
	clk.Step(returnGrace)
	for look := range 3 {
		if got := missing(); got != 0 {
			t.Errorf("look %d: %d nodes are missing after the grace, want none", look, got)
		}
	}
	// What is noted next takes its place, and then nothing is kept of it.
	if err := environment.Client.Get(t.Context(), types.NamespacedName{Name: nodePool.Name}, nodePool); err != nil {
		t.Fatal(err)
	}
	if err := l.add(t.Context(), nodePool, nil, nodeClaim); err != nil {
		t.Fatal(err)
	}
	if entries := entriesOf(nodePool); len(entries) != 1 || entries[0].UID != nodeClaim.UID || len(l.gone) != 0 {
		t.Errorf("%s is %s, and %v is remembered", v1alpha1.RolloutAnnotationKey, nodePool.Annotations[v1alpha1.RolloutAnnotationKey], l.gone)
	}
}

// TestReplacementIsKnownByAnyClock: whether a NodeClaim is younger than one that was deleted first is for the API server to say. The
// provider's clock is not compared with it.
func TestReplacementIsKnownByAnyClock(t *testing.T) {
	cluster := tenanttest.TenantCluster(t, &environment)
	dynamic, old, _ := drifted(t, cluster.Namespace, cluster.Name)
	for name, ahead := range map[string]time.Duration{"Right": 0, "Ahead": 5 * time.Hour, "Behind": -5 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			nodePool := &karpv1.NodePool{}
			if err := environment.Client.Get(t.Context(), types.NamespacedName{Name: dynamic.Name}, nodePool); err != nil {
				t.Fatal(err)
			}
			l := newReplacements(Dependencies{Client: environment.Client,
				Clusters: tenanttest.ClustersOf(cluster, environment.Client, environment.Client),
				Clock:    clocktesting.NewFakeClock(time.Now().Add(ahead))}, nil, nil)
			gone := &karpv1.NodeClaim{}
			gone.Name, gone.UID = "gone", types.UID("gone-"+name)
			if err := l.add(t.Context(), nodePool, nil, gone); err != nil {
				t.Fatal(err)
			}
			up := func(created time.Time) karpv1.NodeClaim {
				nodeClaim := karpv1.NodeClaim{}
				nodeClaim.UID, nodeClaim.CreationTimestamp = types.UID(created.String()), metav1.NewTime(created)
				nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
				return nodeClaim
			}
			for kind, tc := range map[string]struct {
				created time.Time
				want    int
			}{
				"Older":   {old.CreationTimestamp.Time, 1},
				"Younger": {old.CreationTimestamp.Add(time.Minute), 0},
			} {
				left := stillMissing(entriesOf(nodePool), []karpv1.NodeClaim{up(tc.created)}, func(*karpv1.NodeClaim) bool { return false },
					func(types.UID) bool { return true })
				if len(left) != tc.want {
					t.Errorf("%s than what was deleted first: %d are missing, want %d", kind, len(left), tc.want)
				}
			}
		})
	}
}
