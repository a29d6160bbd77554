// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	requirements "sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// oneNode is the amount that a node takes of the limit on nodes, which its capacity does not contain.
var oneNode = corev1.ResourceList{resources.Node: resource.MustParse("1")}

// Drift replaces the drifted nodes of dynamic NodePools. It is core's while core can launch the replacement first.
type Drift struct {
	disruption.Method // core's
	terminator
	deviceAllocation *deviceallocation.Controller
}

// ComputeCommands implements disruption.Method. Like core's it returns one command with one candidate, or none.
func (d *Drift) ComputeCommands(
	ctx context.Context, budgets map[string]int, candidates ...*disruption.Candidate,
) ([]disruption.Command, error) {
	pools, err := d.pools(ctx, budgets, candidates)
	if err != nil {
		return nil, err
	}
	groups, err := d.order(ctx, pools, candidates)
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		if commands, ended, err := d.replaceOne(ctx, pools, group); ended || err != nil {
			return commands, err
		}
	}
	return nil, nil
}

// replaceOne replaces one of the candidates, and reports whether the pass ends with it.
func (d *Drift) replaceOne(ctx context.Context, pools map[string]*pool, candidates []*disruption.Candidate) (
	commands []disruption.Command, ended bool, err error,
) {
	// 1. Core replaces the candidates whose replacement can be launched first.
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
			return commands, true, err
		}
	}
	// 2. Of the others, delete the one that drifted first and whose pods would run again on its own server.
	rest = append(rest, replaceable...)
	slices.SortStableFunc(rest, func(a, b *disruption.Candidate) int { return driftedSince(a).Compare(driftedSince(b)) })
	for _, candidate := range rest {
		p := pools[candidate.NodePool.Name]
		results, err := d.simulate(ctx, candidate)
		if err != nil {
			// Core skips a candidate that is being deleted meanwhile, and does not export this error.
			log.FromContext(ctx).V(1).Info("leaving a drifted node alone", "NodeClaim", candidate.NodeClaim.Name, "why", err.Error())
			continue
		}
		if !results.AllNonPendingPodsScheduled() {
			if !waitsForNode(results.PodErrors) {
				d.Recorder.Publish(blocked(candidate, results.NonPendingPodSchedulingErrors())...)
			}
			continue
		}
		why := d.cannotReplaceFirst(p.live, candidate)
		if why == "" {
			why = "no server is free to replace it before"
		}
		if commands, ended := d.tryTerminate(ctx, p, candidate, why); ended {
			return commands, true, nil
		}
	}
	return nil, false, nil
}

// cannotReplaceFirst returns why no replacement can be launched beside the node, "" if one can. Core does not check
// this: it would launch one again and again, and the provider would refuse it.
func (d *Drift) cannotReplaceFirst(nodePool *karpv1.NodePool, candidate *disruption.Candidate) string {
	needed := resources.Merge(d.Cluster.NodePoolResourcesFor(nodePool.Name), candidate.Capacity(), oneNode)
	if err := nodePool.Spec.Limits.ExceededBy(needed); err != nil {
		return fmt.Sprintf("the limits of NodePool %s do not permit a replacement beside it", nodePool.Name)
	}
	if nodeType := candidate.Labels()[corev1.LabelInstanceTypeStable]; d.Servers.RefusedLately(nodePool.Name, nodeType) {
		return fmt.Sprintf("a server of NodeType %s for NodePool %s was refused a moment ago", nodeType, nodePool.Name)
	}
	return ""
}

// waitsForNode reports whether a pod would run on a node that is not initialized yet: then the next pass may succeed.
func waitsForNode(podErrors map[*corev1.Pod]error) bool {
	return lo.SomeBy(lo.Values(podErrors), func(err error) bool { return errors.As(err, new(*disruption.UninitializedNodeError)) })
}

// driftedSince returns when core found that a candidate has drifted.
func driftedSince(candidate *disruption.Candidate) time.Time {
	return candidate.NodeClaim.StatusConditions().Get(karpv1.ConditionTypeDrifted).LastTransitionTime.Time
}

// enough servers for every pod in a simulation. Otherwise other pending pods could take the servers, and there would
// seem to be none for the drained pods.
const enough = 1 << 20

// simulatedCapacity is a CloudProvider with free servers like the server of a node, as if it had been released.
type simulatedCapacity struct {
	cloudprovider.CloudProvider
	// node are the labels of the node.
	node map[string]string
}

// GetInstanceTypes implements cloudprovider.CloudProvider.
func (s *simulatedCapacity) GetInstanceTypes(ctx context.Context, nodePool *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	types, err := s.CloudProvider.GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return nil, err
	}
	result := make([]*cloudprovider.InstanceType, len(types))
	for i, instanceType := range types {
		result[i] = instanceType
		if instanceType.Name == s.node[corev1.LabelInstanceTypeStable] {
			result[i] = withFreeServers(instanceType, s.node)
		}
	}
	return result, nil
}

// simulate returns what core would do with the pods of a candidate if its server were free. It uses core's provisioner
// with simulated capacity. The provisioner's cache of virtual pods fills itself on first use.
func (d *Drift) simulate(ctx context.Context, candidate *disruption.Candidate) (scheduling.Results, error) {
	// Each new provisioner would log its warnings about a pod again.
	ctx = log.IntoContext(ctx, logr.Discard())
	released := &simulatedCapacity{CloudProvider: d.CloudProvider, node: candidate.Labels()}
	provisioner := provisioning.NewProvisioner(d.Client, d.Recorder, released, d.Cluster, d.Clock, d.deviceAllocation,
		virtualpods.NewVirtualPodCache(d.Client))
	return disruption.SimulateScheduling(ctx, d.Client, d.Cluster, provisioner, d.Clock, d.Recorder, nil,
		disruption.SimulationOptions{}, candidate)
}

// withFreeServers copies an instance type, which is shared, and makes the offerings in the zone of a node available. A
// type without a free server in a domain lacks the labels of that domain, so the copy gets the domain labels of the
// node. If the type no longer has the zone of the node, because it was renamed, the server comes back in one that the
// type has.
func withFreeServers(instanceType *cloudprovider.InstanceType, node map[string]string) *cloudprovider.InstanceType {
	zone := node[corev1.LabelTopologyZone]
	hasZone := slices.ContainsFunc(instanceType.Offerings, func(offering *cloudprovider.Offering) bool { return offering.Zone() == zone })
	result := instancetypes.WithOfferings(instanceType, func(offering *cloudprovider.Offering) {
		inZone := offering.Requirements.Get(corev1.LabelTopologyZone).Operator() == corev1.NodeSelectorOpIn
		if inZone && (!hasZone || offering.Zone() == zone) {
			offering.Available, offering.ReservationCapacity = true, enough
		}
	})
	result.Requirements = requirements.NewRequirements(instanceType.Requirements.Values()...)
	for key, original := range instanceType.Requirements {
		if value, has := node[key]; has && !original.Has(value) && (hasZone || key != corev1.LabelTopologyZone) {
			result.Requirements[key] = requirements.NewRequirement(key, corev1.NodeSelectorOpIn, append(original.Values(), value)...)
		}
	}
	return result
}

// StaticDrift replaces the drifted nodes of static NodePools. It behaves like core's StaticDrift for as many nodes as
// there are free servers. Core itself does not check whether there are any.
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
	groups, err := d.order(ctx, pools, candidates)
	if err != nil {
		return nil, err
	}
	var commands []disruption.Command
	ended := sets.New[string]()
	for _, group := range groups { // each of one pool
		name := group[0].NodePool.Name
		if pools[name] == nil || ended.Has(name) {
			continue
		}
		ofPool, isEnded, err := d.computePool(ctx, pools[name], group)
		if err != nil {
			return commands, err
		}
		if commands = append(commands, ofPool...); isEnded {
			ended.Insert(name)
		}
	}
	return commands, nil
}

// computePool returns the commands for some candidates of a pool, and reports whether the others get none in this pass.
func (d *StaticDrift) computePool(ctx context.Context, p *pool, candidates []*disruption.Candidate) (
	commands []disruption.Command, ended bool, err error,
) {
	active, deleting, leaving := d.Cluster.NodePoolState.GetNodeCount(p.live.Name)
	replicas := p.live.Spec.Replicas
	if p.left == 0 || replicas == nil || int64(active+leaving) > *replicas {
		return nil, true, nil // Core scales it down first.
	}
	allowed := int64(math.MaxInt32)
	if limit, limited := p.live.Spec.Limits[resources.Node]; limited {
		allowed = limit.Value() - int64(active+deleting+leaving)
	}
	slices.SortStableFunc(candidates, func(a, b *disruption.Candidate) int { return driftedSince(a).Compare(driftedSince(b)) })
	free := int64(0)
	if !d.Servers.RefusedLately(p.live.Name, candidates[0].Labels()[corev1.LabelInstanceTypeStable]) {
		var err error
		if free, _, err = d.Servers.FreeFor(ctx, p.live); err != nil {
			return nil, false, fmt.Errorf("counting the servers that are free for NodePool %s, %w", p.live.Name, err)
		}
	}
	if first := min(int64(p.left), allowed, free); first > 0 {
		commands, err := d.Method.ComputeCommands(ctx, map[string]int{p.live.Name: int(first)}, candidates...)
		return commands, len(commands) > 0, err
	}
	why := "no server is free to replace it before"
	if allowed <= 0 {
		why = fmt.Sprintf("limits.nodes of NodePool %s does not permit a replacement beside it", p.live.Name)
	}
	for _, candidate := range candidates {
		if again, err := d.canReuseServer(ctx, p.live, candidate); err != nil {
			return nil, false, err
		} else if !again {
			d.Recorder.Publish(blocked(candidate, fmt.Sprintf("%s, and NodePool %s may not have its server again", why, p.live.Name))...)
			continue
		}
		if commands, ended := d.tryTerminate(ctx, p, candidate, why); ended {
			return commands, true, nil
		}
	}
	return nil, false, nil
}

// canReuseServer reports whether the NodePool could get the server of a node again once released. It could not if the
// NodePool now has other requirements, if its class is for other servers, or if the tenant may no longer have the type.
func (d *StaticDrift) canReuseServer(ctx context.Context, nodePool *karpv1.NodePool, candidate *disruption.Candidate) (bool, error) {
	labels := candidate.Labels()
	types, err := (&simulatedCapacity{CloudProvider: d.CloudProvider, node: labels}).GetInstanceTypes(ctx, nodePool)
	if err != nil {
		return false, fmt.Errorf("looking for the type of NodeClaim %s, %w", candidate.NodeClaim.Name, err)
	}
	wanted := instancetypes.OfNodePool(nodePool)
	for _, instanceType := range types {
		if instanceType.Name != labels[corev1.LabelInstanceTypeStable] {
			continue
		}
		server := maps.Clone(labels)
		// The other labels, like the capacity type, come from the NodePool. The new node gets its labels of then.
		maps.DeleteFunc(server, func(key, _ string) bool {
			return !instanceType.Requirements.Has(key) || key == karpv1.CapacityTypeLabelKey
		})
		return instancetypes.HasFree(instanceType, wanted) && requirements.NewLabelRequirements(server).Intersects(wanted) == nil, nil
	}
	return false, nil
}
