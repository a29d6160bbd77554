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
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
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
		if back, err := d.comesBack(ctx, p.live, candidate); err != nil {
			return nil, err
		} else if !back {
			d.Recorder.Publish(noWayBack(candidate, fmt.Sprintf("%s, and NodePool %s may not have its server again", why, p.live.Name))...)
			continue
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

// spare is how many servers are free that the pool may have. Without reservations it is only known whether there are any.
func (d *StaticDrift) spare(ctx context.Context, nodePool *karpv1.NodePool) (int, error) {
	if d.Refusals.RefusedLately(nodePool.Name) {
		return 0, nil
	}
	types, err := d.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return 0, fmt.Errorf("counting the servers that are free for NodePool %s, %w", nodePool.Name, err)
	}
	wanted, count := wantedBy(nodePool), 0
	for _, instanceType := range types {
		count += freeOf(instanceType, wanted)
	}
	return count, nil
}

// comesBack tells whether the pool could have the server of a node again once it is released. If the pool has come to
// require something else, or its class is for other servers, or the tenant may not have the type any more, nothing would
// replace the node.
func (d *StaticDrift) comesBack(ctx context.Context, nodePool *karpv1.NodePool, candidate *disruption.Candidate) (bool, error) {
	labels := candidate.Labels()
	types, err := d.CloudProvider.GetInstanceTypes(suppose(ctx, labels), nodePool)
	if err != nil {
		return false, fmt.Errorf("looking for the type of NodeClaim %s, %w", candidate.NodeClaim.Name, err)
	}
	wanted := wantedBy(nodePool)
	for _, instanceType := range types {
		if instanceType.Name != labels[corev1.LabelInstanceTypeStable] {
			continue
		}
		server := maps.Clone(labels)
		// What else is on the node comes from the pool, and will be what the pool says then.
		maps.DeleteFunc(server, func(key, _ string) bool { return !instanceType.Requirements.Has(key) })
		return freeOf(instanceType, wanted) > 0 && scheduling.NewLabelRequirements(server).Intersects(wanted) == nil, nil
	}
	return false, nil
}

// wantedBy is what a pool requires of its servers.
func wantedBy(nodePool *karpv1.NodePool) scheduling.Requirements {
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodePool.Spec.Template.Spec.Requirements...)
	wanted.Add(scheduling.NewLabelRequirements(nodePool.Spec.Template.Labels).Values()...)
	return wanted
}

// freeOf is how many servers of a type are free that meet the requirements.
func freeOf(instanceType *cloudprovider.InstanceType, wanted scheduling.Requirements) int {
	count := 0
	if instanceType.Requirements.Intersects(wanted) != nil {
		return count
	}
	for _, offering := range instanceType.Offerings.Available() {
		if offering.Requirements.Intersects(wanted) == nil {
			count += max(offering.ReservationCapacity, 1)
		}
	}
	return count
}
