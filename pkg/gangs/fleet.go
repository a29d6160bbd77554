// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package gangs

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// fleet is what there is to place gangs in. It shrinks with each gang that is placed.
type fleet struct {
	rooms []instancetypes.Room
	// taken is how many servers of each room are promised to gangs, by Room.Servers.
	taken map[string]int32
	pools []karpenterv1.NodePool
	// standing are the tenant's own servers, booted or on the way.
	standing []*standing
}

// standing is a server that the tenant has.
type standing struct {
	name      string
	labels    map[string]string
	taints    []corev1.Taint
	remaining corev1.ResourceList
}

// less takes away what a pod has of the server, or will have.
func (s *standing) less(requests corev1.ResourceList, times int64) {
	for range times {
		s.remaining = resources.Subtract(s.remaining, requests)
	}
}

// fits is how many pods of a gang fit on the server.
func (s *standing) fits(asks ask) int64 {
	if scheduling.Taints(s.taints).ToleratesPod(asks.pod) != nil ||
		scheduling.NewLabelRequirements(s.labels).Compatible(asks.requirements) != nil {
		return 0
	}
	return asks.perServer(s.remaining)
}

// ask is what one pod of a gang wants of a server.
type ask struct {
	pod          *corev1.Pod
	requirements scheduling.Requirements
	needs        corev1.ResourceList
	oneEach      bool
}

func (g *gang) ask() ask {
	return ask{pod: g.pods[0], requirements: scheduling.NewStrictPodRequirements(g.pods[0]), needs: g.needs(), oneEach: g.oneEach()}
}

// perServer is how many pods fit into so much.
func (a ask) perServer(allocatable corev1.ResourceList) int64 {
	fit := int64(math.MaxInt32)
	if a.oneEach {
		fit = 1
	}
	for name, quantity := range a.needs {
		if quantity.Sign() <= 0 {
			continue
		}
		there := allocatable[name]
		if there.Cmp(quantity) < 0 {
			return 0
		}
		// A millionth makes up for what is lost on the way to floating point.
		fit = min(fit, int64(there.AsApproximateFloat64()/quantity.AsApproximateFloat64()+1e-6))
	}
	return fit
}

// serves is how many pods fit on a server of a room, if a NodePool would have one.
func (f *fleet) serves(room instancetypes.Room, asks ask) int64 {
	place := scheduling.NewLabelRequirements(room.Labels)
	if room.InstanceType.Requirements.Intersects(asks.requirements) != nil || place.Intersects(asks.requirements) != nil {
		return 0
	}
	for i := range f.pools {
		if allows(&f.pools[i], room.InstanceType, place, asks) {
			return asks.perServer(room.InstanceType.Allocatable())
		}
	}
	return 0
}

func allows(pool *karpenterv1.NodePool, instanceType *cloudprovider.InstanceType, place scheduling.Requirements, asks ask) bool {
	template := &pool.Spec.Template
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(template.Spec.Requirements...)
	requirements.Add(scheduling.NewLabelRequirements(template.Labels).Values()...)
	return scheduling.Taints(template.Spec.Taints).ToleratesPod(asks.pod) == nil &&
		requirements.Intersects(asks.requirements) == nil &&
		instanceType.Requirements.Intersects(requirements) == nil &&
		place.Intersects(requirements) == nil
}
