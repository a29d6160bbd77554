// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	disruptionevents "sigs.k8s.io/karpenter/pkg/controllers/disruption/events"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	podutils "sigs.k8s.io/karpenter/pkg/utils/pod"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/gangs"
)

// consolidation is a method of core that skips nodes with pods of a PodGroup that is disrupted as a whole: saving one
// server is not worth the restart of a job on many.
type consolidation struct {
	consolidates // core's
	terminator
}

// consolidates is the interface that core requires of its consolidation methods.
type consolidates interface {
	disruption.Method
	disruption.NodePoolTotalsSetter
}

// ShouldDisrupt implements disruption.Method.
func (c *consolidation) ShouldDisrupt(ctx context.Context, candidate *disruption.Candidate) bool {
	if !c.consolidates.ShouldDisrupt(ctx, candidate) {
		return false
	}
	groups, err := c.groupsOn(ctx, candidate.StateNode)
	if err != nil {
		log.FromContext(ctx).V(1).Info("not consolidating a node", "NodeClaim", candidate.NodeClaim.Name, "why", err.Error())
		return false
	}
	if len(groups) == 0 {
		return true
	}
	c.Recorder.Publish(disruptionevents.Unconsolidatable(candidate.Node, candidate.NodeClaim, areTogether(groups...))...)
	return false
}

// groupsOn returns the PodGroups that have pods on a node and are disrupted as a whole, sorted.
func (t *terminator) groupsOn(ctx context.Context, node *state.StateNode) ([]client.ObjectKey, error) {
	pods, err := node.Pods(ctx, t.Client)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s, %w", node.Name(), err)
	}
	groups := sets.New[client.ObjectKey]()
	for _, pod := range pods {
		group := gangs.PodGroupOf(pod)
		if group == "" || podutils.IsTerminal(pod) {
			continue
		}
		key := client.ObjectKey{Namespace: pod.Namespace, Name: group}
		together, err := t.DisruptedTogether(ctx, key)
		if err != nil {
			return nil, err
		}
		if together {
			groups.Insert(key)
		}
	}
	return slices.SortedFunc(maps.Keys(groups), func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) }), nil
}

// areTogether says why a node with pods of these groups is left alone.
func areTogether(groups ...client.ObjectKey) string {
	names := lo.Map(groups, func(key client.ObjectKey, _ int) string { return "PodGroup " + key.String() })
	return fmt.Sprintf("the pods of %s are disrupted together (disruptionMode)", strings.Join(names, " and "))
}

// wholeGroup identifies the nodes of a NodePool with pods of a PodGroup that is disrupted as a whole.
type wholeGroup struct {
	nodePool string
	podGroup client.ObjectKey
}

// progress is the rest of a wholeGroup.
type progress struct {
	// nodes counts the nodes that are not on their way. stays is a drifted one that cannot be disrupted now, if any.
	nodes int
	stays string
}

// whyNotNow returns why the replacement cannot begin, "" if it can.
func (p *progress) whyNotNow(group wholeGroup, left int) string {
	sentence := areTogether(group.podGroup)
	switch {
	case p.stays != "":
		return fmt.Sprintf("%s, and NodeClaim %s cannot be disrupted now", sentence, p.stays)
	case p.nodes > left:
		return fmt.Sprintf("%s: they are on %d nodes, and the budgets of NodePool %s allow %d more now", sentence, p.nodes, group.nodePool, left)
	}
	return ""
}

// order returns the candidates that may be replaced in this pass, in the order of their replacement: first a PodGroup
// that is disrupted as a whole and has begun, then the others, each NVLink domain by itself. Such a PodGroup counts in
// the budgets with all of its nodes, even ones that have not drifted: its pods restart there, too. It begins only when
// none of its drifted nodes must stay, so that its pods restart once.
func (t *terminator) order(ctx context.Context, pools map[string]*pool, candidates []*disruption.Candidate) (
	[][]*disruption.Candidate, error,
) {
	byName := lo.KeyBy(candidates, func(candidate *disruption.Candidate) string { return candidate.NodeClaim.Name })
	known, groupsOf := map[wholeGroup]*progress{}, map[string][]wholeGroup{}
	leaving := sets.New[string]() // the IDs of gangs that had pods on nodes which are on their way
	for node := range t.Cluster.Nodes() {
		if node.NodeClaim == nil {
			continue
		}
		drifted := node.NodeClaim.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue()
		podGroups, err := t.groupsOn(ctx, node)
		if err != nil {
			return nil, err
		}
		if node.MarkedForDeletion() {
			if drifted { // its pods may be gone already
				leaving.Insert(lo.Map(v1alpha1.GangsOf(node.NodeClaim), func(g v1alpha1.MachineGang, _ int) string { return g.Name })...)
			}
			leaving.Insert(lo.Map(podGroups, func(key client.ObjectKey, _ int) string { return gangs.PodGroupID(key) })...)
			continue
		}
		for _, podGroup := range podGroups {
			group := wholeGroup{nodePool: node.Labels()[karpv1.NodePoolLabelKey], podGroup: podGroup}
			groupsOf[node.NodeClaim.Name] = append(groupsOf[node.NodeClaim.Name], group)
			if known[group] == nil {
				known[group] = &progress{}
			}
			known[group].nodes++
			if drifted && byName[node.NodeClaim.Name] == nil {
				known[group].stays = node.NodeClaim.Name
			}
		}
	}
	var begun, others []*disruption.Candidate
	for _, candidate := range candidates {
		isBegun, why := false, ""
		for _, group := range groupsOf[candidate.NodeClaim.Name] {
			isBegun = isBegun || leaving.Has(gangs.PodGroupID(group.podGroup))
			if p := pools[group.nodePool]; p != nil {
				why = cmp.Or(why, known[group].whyNotNow(group, p.left))
			}
		}
		switch {
		case isBegun:
			begun = append(begun, candidate)
		case why != "":
			t.Recorder.Publish(blocked(candidate, why)...)
		default:
			others = append(others, candidate)
		}
	}
	return append(byDomain(begun, t.Cluster.Nodes()), byDomain(others, t.Cluster.Nodes())...), nil
}
