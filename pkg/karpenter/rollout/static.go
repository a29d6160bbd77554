// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// StaticDrift replaces the drifted nodes of static NodePools. It is core's method of that name for as many nodes as there are
// free servers. Core itself does not check whether there are any.
type StaticDrift struct {
	disruption.Method // core's
	terminator
}

// ComputeCommands implements disruption.Method.
func (d *StaticDrift) ComputeCommands(ctx context.Context, budgets map[string]int,
	candidates ...*disruption.Candidate) ([]disruption.Command, error) {
	pools, err := d.pools(ctx, budgets, candidates)
	if err != nil {
		return nil, err
	}
	byPool := map[string][]*disruption.Candidate{}
	for _, candidate := range candidates {
		byPool[candidate.NodePool.Name] = append(byPool[candidate.NodePool.Name], candidate)
	}
	var commands []disruption.Command
	for name, p := range pools {
		ofPool, err := d.computePool(ctx, p, byPool[name])
		if err != nil {
			return commands, err
		}
		commands = append(commands, ofPool...)
	}
	return commands, nil
}

func (d *StaticDrift) computePool(ctx context.Context, p *pool, candidates []*disruption.Candidate) ([]disruption.Command, error) {
	active, deleting, leaving := d.Cluster.NodePoolState.GetNodeCount(p.live.Name)
	replicas := p.live.Spec.Replicas
	if p.left == 0 || replicas == nil || int64(active+leaving) > *replicas {
		return nil, nil // Core scales it down first.
	}
	allowed := int64(math.MaxInt32)
	if limit, limited := p.live.Spec.Limits[resources.Node]; limited {
		allowed = limit.Value() - int64(active+deleting+leaving)
	}
	free := int64(0)
	if !d.Servers.RefusedLately(p.live.Name) {
		var err error
		if free, err = d.Servers.FreeFor(ctx, p.live); err != nil {
			return nil, fmt.Errorf("counting the servers that are free for NodePool %s, %w", p.live.Name, err)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *disruption.Candidate) int { return driftedSince(a).Compare(driftedSince(b)) })
	if first := min(int64(p.left), allowed, free); first > 0 {
		return d.Method.ComputeCommands(ctx, map[string]int{p.live.Name: int(first)}, candidates...)
	}
	why := "no server is free to replace it before"
	if allowed <= 0 {
		why = fmt.Sprintf("limits.nodes of NodePool %s does not permit a replacement beside it", p.live.Name)
	}
	for _, candidate := range candidates {
		if again, err := d.canReuseServer(ctx, p.live, candidate); err != nil {
			return nil, err
		} else if !again {
			d.Recorder.Publish(blocked(candidate, fmt.Sprintf("%s, and NodePool %s may not have its server again", why, p.live.Name))...)
			continue
		}
		command, err := d.terminate(ctx, p, candidate, why)
		if err != nil {
			d.leave(ctx, candidate, err)
			return nil, nil
		}
		if command != nil {
			return []disruption.Command{*command}, nil
		}
	}
	return nil, nil
}

// canReuseServer returns whether the NodePool could get the server of a node again once it is released. If the NodePool now
// requires something else, or its class is for other servers, or the tenant is not allowed the type any more, nothing would
// replace the node.
func (d *StaticDrift) canReuseServer(ctx context.Context, nodePool *karpv1.NodePool, candidate *disruption.Candidate) (bool, error) {
	labels := candidate.Labels()
	types, err := withSimulatedCapacity(d.CloudProvider, candidate).GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return false, fmt.Errorf("looking for the type of NodeClaim %s, %w", candidate.NodeClaim.Name, err)
	}
	wanted := wantedBy(nodePool)
	for _, instanceType := range types {
		if instanceType.Name != labels[corev1.LabelInstanceTypeStable] {
			continue
		}
		server := maps.Clone(labels)
		// The other labels come from the NodePool, and the new node gets those that it has then.
		maps.DeleteFunc(server, func(key, _ string) bool { return !instanceType.Requirements.Has(key) })
		return instancetypes.HasFree(instanceType, wanted) && scheduling.NewLabelRequirements(server).Intersects(wanted) == nil, nil
	}
	return false, nil
}

// wantedBy is what a pool requires of its servers.
func wantedBy(nodePool *karpv1.NodePool) scheduling.Requirements {
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodePool.Spec.Template.Spec.Requirements...)
	wanted.Add(scheduling.NewLabelRequirements(nodePool.Spec.Template.Labels).Values()...)
	return wanted
}
