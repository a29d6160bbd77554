// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"fmt"
	"math"
	"slices"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"
)

// StaticDrift rolls the drifted nodes of static pools. It is core's method of that name for as many nodes as there are
// servers to replace them with. Core itself asks nobody whether there are any.
type StaticDrift struct {
	disruption.Method // core's
	terminator
}

// ComputeCommands implements disruption.Method.
func (d *StaticDrift) ComputeCommands(ctx context.Context, budgets map[string]int, candidates ...*disruption.Candidate) ([]disruption.Command, error) {
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
		made, err := d.roll(ctx, p, byPool[name])
		if err != nil {
			return commands, err
		}
		commands = append(commands, made...)
	}
	return commands, nil
}

func (d *StaticDrift) roll(ctx context.Context, p *pool, candidates []*disruption.Candidate) ([]disruption.Command, error) {
	active, deleting, leaving := d.Cluster.NodePoolState.GetNodeCount(p.live.Name)
	replicas := p.live.Spec.Replicas
	if p.left == 0 || replicas == nil || int64(active+leaving) > *replicas {
		return nil, nil // Core scales it down first.
	}
	room := int64(math.MaxInt32)
	if limit, limited := p.live.Spec.Limits[resources.Node]; limited {
		room = limit.Value() - int64(active+deleting+leaving)
	}
	spare, err := d.spare(ctx, p.live)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(candidates, func(a, b *disruption.Candidate) int { return driftedSince(a).Compare(driftedSince(b)) })
	if first := min(int64(p.left), room, int64(spare)); first > 0 {
		return d.Method.ComputeCommands(ctx, map[string]int{p.live.Name: int(first)}, candidates...)
	}
	why := "no server is free to replace it before"
	if room <= 0 {
		why = fmt.Sprintf("limits.nodes of NodePool %s leaves no room for a replacement beside it", p.live.Name)
	}
	for _, candidate := range candidates {
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

// spare is how many servers are free that the pool may have. Without reservations it is only known whether there are any.
func (d *StaticDrift) spare(ctx context.Context, nodePool *karpv1.NodePool) (int, error) {
	if d.Refusals.RefusedLately(nodePool.Name) {
		return 0, nil
	}
	types, err := d.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return 0, fmt.Errorf("counting the servers that are free for NodePool %s, %w", nodePool.Name, err)
	}
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodePool.Spec.Template.Spec.Requirements...)
	wanted.Add(scheduling.NewLabelRequirements(nodePool.Spec.Template.Labels).Values()...)
	count := 0
	for _, instanceType := range types {
		if instanceType.Requirements.Intersects(wanted) != nil {
			continue
		}
		for _, offering := range instanceType.Offerings.Available() {
			if offering.Requirements.Intersects(wanted) == nil {
				count += max(offering.ReservationCapacity, 1)
			}
		}
	}
	return count, nil
}
