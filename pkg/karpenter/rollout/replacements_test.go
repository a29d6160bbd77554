// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestStillMissing: a node that went first is missing until one that was made later is initialized.
func TestStillMissing(t *testing.T) {
	claim := func(uid string, minutes int, change func(*karpv1.NodeClaim)) karpv1.NodeClaim {
		nodeClaim := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: uid, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute)),
		}}
		if change != nil {
			change(&nodeClaim)
		}
		return nodeClaim
	}
	up := func(n *karpv1.NodeClaim) {
		n.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
		n.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered)
		n.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
	}
	going := func(n *karpv1.NodeClaim) { n.DeletionTimestamp = &metav1.Time{Time: noon} }
	first := entry{NodeClaim: "a", UID: "a", Since: metav1.NewTime(noon)}
	second := entry{NodeClaim: "b", UID: "b", Since: metav1.NewTime(noon.Add(time.Minute))}
	for name, tc := range map[string]struct {
		reason string
		claims []karpv1.NodeClaim
		queued string
		awaits bool
		want   []entry
	}{
		"Deleting": {reason: "it is being drained", claims: []karpv1.NodeClaim{claim("a", -60, going), claim("b", -60, going)},
			want: []entry{first, second}},
		"Spared": {reason: "the process died before it was deleted", claims: []karpv1.NodeClaim{claim("a", -60, up), claim("b", -60, up)}},
		"AboutToGo": {reason: "core has it in its queue", claims: []karpv1.NodeClaim{claim("a", -60, up), claim("b", -60, up)}, queued: "a",
			want: []entry{first}},
		"Gone":      {reason: "its pods wait for the server", awaits: true, want: []entry{first, second}},
		"NotWanted": {reason: "no pod needs the servers any more"},
		"ComingUp":  {reason: "the replacement is not a node yet", claims: []karpv1.NodeClaim{claim("c", 2, nil)}, want: []entry{first}},
		"One": {reason: "one replacement replaces one", claims: []karpv1.NodeClaim{claim("c", 2, up)}, awaits: true,
			want: []entry{second}},
		"OneAndComing": {reason: "the one that is up counts first", claims: []karpv1.NodeClaim{claim("c", 2, nil), claim("d", 3, up)},
			want: []entry{second}},
		"Both": {reason: "the rollout goes on", claims: []karpv1.NodeClaim{claim("c", 2, up), claim("d", 3, up)}, awaits: true},
		"Older": {reason: "what was there before replaces nothing", claims: []karpv1.NodeClaim{claim("z", -1, up)}, awaits: true,
			want: []entry{first, second}},
		"FailedAgain": {reason: "a replacement that is given up replaces nothing", claims: []karpv1.NodeClaim{claim("c", 2, going)}, awaits: true,
			want: []entry{first, second}},
	} {
		t.Run(name, func(t *testing.T) {
			got := stillMissing([]entry{first, second}, tc.claims,
				func(n *karpv1.NodeClaim) bool { return n.Name == tc.queued }, func(types.UID) bool { return tc.awaits })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestInvalidAnnotationIsIgnored count for nothing, and break nothing.
func TestInvalidAnnotationIsIgnored(t *testing.T) {
	for _, text := range []string{"", "{", `{"a": 1}`, "[[]]"} {
		nodePool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.RolloutAnnotationKey: text}}}
		if entries := entriesOf(nodePool); len(entries) != 0 {
			t.Errorf("%q is read as %+v", text, entries)
		}
	}
}
