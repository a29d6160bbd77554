// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/state"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// nodeIn is a drifted node of an NVLink domain, or of none.
func nodeIn(name, domain string) *state.StateNode {
	nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeDrifted)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		karpv1.NodePoolLabelKey: "gpu", karpv1.NodeRegisteredLabelKey: "true",
	}}}
	if domain != "" {
		node.Labels[v1alpha1.NVLinkDomainLabelKey] = domain
	}
	return &state.StateNode{Node: node, NodeClaim: nodeClaim}
}

func TestByDomain(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(nodes map[string]*state.StateNode)
		want   string
	}{
		"Fresh": {reason: "the smallest first, which is done soonest", want: "[b1] [c1 c2 c3] [a1 a2 a3 a4]"},
		"Replaced": {reason: "a domain that is begun is ended", change: func(n map[string]*state.StateNode) { replaced(n["a1"]) },
			want: "[a2 a3 a4] [b1] [c1 c2 c3]"},
		"Leaving": {reason: "it is begun with the first node that leaves", change: func(n map[string]*state.StateNode) {
			n["c2"].NodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeInstanceTerminating)
		}, want: "[c1 c3] [b1] [a1 a2 a3 a4]"},
		"OtherPool": {reason: "the nodes of another pool have a rollout of their own", change: func(n map[string]*state.StateNode) {
			replaced(n["a1"])
			n["a1"].Node.Labels[karpv1.NodePoolLabelKey] = "other"
		}, want: "[b1] [a2 a3 a4] [c1 c2 c3]"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes, all := map[string]*state.StateNode{}, []*state.StateNode{}
			for domain, count := range map[string]int{"a": 4, "b": 1, "c": 3} {
				for i := range count {
					node := nodeIn(fmt.Sprintf("%s%d", domain, i+1), domain)
					nodes[node.Node.Name], all = node, append(all, node)
				}
			}
			if tc.change != nil {
				tc.change(nodes)
			}
			var candidates []*disruption.Candidate
			for _, node := range all {
				if node.NodeClaim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue() && !node.MarkedForDeletion() {
					candidates = append(candidates, &disruption.Candidate{StateNode: node})
				}
			}
			var got []string
			for _, group := range byDomain(candidates, slices.Values(all)) {
				var names []string
				for _, candidate := range group {
					names = append(names, candidate.NodeClaim.Name)
				}
				slices.Sort(names)
				got = append(got, fmt.Sprint(names))
			}
			if got := fmt.Sprint(got); got != "["+tc.want+"]" {
				t.Errorf("%s: %s, want [%s]", tc.reason, got, tc.want)
			}
		})
	}
}

func replaced(node *state.StateNode) {
	_ = node.NodeClaim.StatusConditions().Clear(karpv1.ConditionTypeDrifted) // fails if there is none, which is as well
}

// TestOneDomainAtATime: whatever the budget, and whatever cannot be disrupted at a time, the rollout of four domains of 18 servers begins
// with the next when nothing is left to do in the one before. A node that is replaced is gone for a while.
func TestOneDomainAtATime(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var drifting, back []*state.StateNode
		for i := range 72 {
			drifting = append(drifting, nodeIn(fmt.Sprint("n", i), fmt.Sprint("d", i%4)))
		}
		budget, leaving, begun := 1+random.IntN(18), []*state.StateNode{}, map[nvlinkDomain]bool{}
		for len(back) < 72 {
			if len(leaving) == budget || len(drifting) == 0 || random.IntN(2) == 0 && len(leaving) > 0 {
				node := leaving[random.IntN(len(leaving))]
				leaving = slices.DeleteFunc(leaving, func(other *state.StateNode) bool { return other == node })
				node.NodeClaim.DeletionTimestamp = nil
				replaced(node)
				back = append(back, node)
				continue
			}
			known, free := slices.Concat(drifting, back), map[nvlinkDomain]bool{}
			for _, node := range leaving {
				if random.IntN(2) == 0 { // it is drained, and its server is not released yet
					known = append(known, node)
				}
			}
			var candidates []*disruption.Candidate
			for _, i := range random.Perm(len(drifting))[:1+random.IntN(len(drifting))] {
				candidates, free[domainOf(drifting[i])] = append(candidates, &disruption.Candidate{StateNode: drifting[i]}), true
			}
			node := byDomain(candidates, slices.Values(known))[0][0].StateNode
			for other := range begun {
				if !begun[domainOf(node)] && free[other] {
					t.Fatalf("seed %d, budget %d: the rollout of %v begins while %v has candidates", seed, budget, domainOf(node), other)
				}
			}
			begun[domainOf(node)] = true
			node.NodeClaim.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)}
			drifting = slices.DeleteFunc(drifting, func(other *state.StateNode) bool { return other == node })
			leaving = append(leaving, node)
		}
		if len(begun) != 4 {
			t.Fatalf("seed %d: the rollout had domains %v, want four", seed, begun)
		}
	}
}
