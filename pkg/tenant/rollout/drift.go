// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// oneNode is what a node takes of the limit on nodes. Its capacity does not say so.
var oneNode = corev1.ResourceList{resources.Node: resource.MustParse("1")}

// Drift rolls the drifted nodes of dynamic pools. It is core's method of that name for as long as core can launch the
// replacement first.
type Drift struct {
	disruption.Method // core's
	terminator
}

// ComputeCommands implements disruption.Method. Like core's it returns one command with one candidate, or none.
func (d *Drift) ComputeCommands(ctx context.Context, budgets map[string]int, candidates ...*disruption.Candidate) ([]disruption.Command, error) {
	pools, err := d.pools(ctx, budgets, candidates)
	if err != nil {
		return nil, err
	}
	// 1. Whatever can be replaced first, is.
	first, rest := map[string]int{}, []*disruption.Candidate{}
	var replaceable []*disruption.Candidate
	for _, candidate := range candidates {
		p := pools[candidate.NodePool.Name]
		if p == nil || p.left == 0 {
			continue
		}
		if why := d.cannotReplaceFirst(p.live, candidate); why != "" {
			rest = append(rest, candidate)
			continue
		}
		first[p.live.Name] = p.left
		replaceable = append(replaceable, candidate)
	}
	if len(replaceable) > 0 {
		commands, err := d.Method.ComputeCommands(ctx, first, replaceable...)
		if err != nil || len(commands) > 0 {
			return commands, err
		}
	}
	// 2. Of the others, the one that has drifted longest and whose pods would run again on its own server.
	rest = append(rest, replaceable...)
	slices.SortStableFunc(rest, func(a, b *disruption.Candidate) int { return driftedSince(a).Compare(driftedSince(b)) })
	for _, candidate := range rest {
		p := pools[candidate.NodePool.Name]
		results, err := disruption.SimulateScheduling(suppose(ctx, candidate.Labels()), d.Client, d.Cluster, d.provisioner, d.Clock, d.Recorder, nil, candidate)
		if err != nil {
			// Core skips a candidate that is being deleted meanwhile, and has no name for that error.
			log.FromContext(ctx).V(1).Info("leaving a drifted node alone", "NodeClaim", candidate.NodeClaim.Name, "why", err.Error())
			continue
		}
		if !results.AllNonPendingPodsScheduled() {
			if !waitsForNode(results.PodErrors) {
				d.Recorder.Publish(noWayBack(candidate, results.NonPendingPodSchedulingErrors())...)
			}
			continue
		}
		why := d.cannotReplaceFirst(p.live, candidate)
		if why == "" {
			why = "no server is free to replace it before"
		}
		command, err := d.terminate(ctx, p, candidate, why)
		if err != nil {
			return nil, err
		}
		if command != nil {
			return []disruption.Command{*command}, nil
		}
	}
	return nil, nil
}

// cannotReplaceFirst says why a NodePool has no room for a replacement beside the node, "" if it has. Core launches one
// all the same, the provider refuses it, and so on.
func (d *Drift) cannotReplaceFirst(nodePool *karpv1.NodePool, candidate *disruption.Candidate) string {
	with := resources.Merge(d.Cluster.NodePoolResourcesFor(nodePool.Name), candidate.Capacity(), oneNode)
	if err := nodePool.Spec.Limits.ExceededBy(with); err != nil {
		return fmt.Sprintf("the limits of NodePool %s leave no room for a replacement beside it", nodePool.Name)
	}
	if d.Refusals.RefusedLately(nodePool.Name) {
		return fmt.Sprintf("a server for NodePool %s was refused a moment ago", nodePool.Name)
	}
	return ""
}

// waitsForNode tells whether some pod would go to a node that is coming up: then that is all there is to wait for.
func waitsForNode(podErrors map[*corev1.Pod]error) bool {
	for _, err := range podErrors {
		var coming *disruption.UninitializedNodeError
		if errors.As(err, &coming) {
			return true
		}
	}
	return false
}

// driftedSince is when core found out that a candidate has drifted.
func driftedSince(candidate *disruption.Candidate) time.Time {
	return candidate.NodeClaim.StatusConditions().Get(karpv1.ConditionTypeDrifted).LastTransitionTime.Time
}
