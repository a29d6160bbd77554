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

// snapshot is the capacity that gangs can be placed in. Placing a gang reduces it.
type snapshot struct {
	free []instancetypes.FreeServers
	// assumed is how many of the free servers the gangs placed so far will use, by FreeServers.ID.
	assumed map[string]int32
	pools   []karpenterv1.NodePool
	// nodes are the servers that the tenant has already, registered or not.
	nodes []*node
}

// node is a server that the tenant has: a NodeClaim, with its Node once that exists.
type node struct {
	name      string
	labels    map[string]string
	taints    []corev1.Taint
	remaining corev1.ResourceList
}

// subtract reserves what pods use or will use of the node.
func (n *node) subtract(requests corev1.ResourceList, times int64) {
	for range times {
		n.remaining = resources.Subtract(n.remaining, requests)
	}
}

// fits is how many pods of a gang fit on the server.
func (n *node) fits(request podRequest) int64 {
	if scheduling.Taints(n.taints).ToleratesPod(request.pod) != nil ||
		scheduling.NewLabelRequirements(n.labels).Compatible(request.requirements) != nil {
		return 0
	}
	return request.perServer(n.remaining)
}

// podRequest is what each pod of a gang needs of a server.
type podRequest struct {
	pod          *corev1.Pod
	requirements scheduling.Requirements
	needs        corev1.ResourceList
	oneEach      bool
}

func (g *gang) request() podRequest {
	return podRequest{pod: g.pods[0], requirements: scheduling.NewStrictPodRequirements(g.pods[0]), needs: g.needs(), oneEach: g.oneEach()}
}

// perServer is how many pods fit into allocatable.
func (r podRequest) perServer(allocatable corev1.ResourceList) int64 {
	fit := int64(math.MaxInt32)
	if r.oneEach {
		fit = 1
	}
	for name, quantity := range r.needs {
		if quantity.Sign() <= 0 {
			continue
		}
		available := allocatable[name]
		if available.Cmp(quantity) < 0 {
			return 0
		}
		// The addition compensates for rounding errors of floating point.
		fit = min(fit, int64(available.AsApproximateFloat64()/quantity.AsApproximateFloat64()+1e-6))
	}
	return fit
}

// fits is how many pods fit on each of the free servers, zero if no NodePool allows them there.
func (s *snapshot) fits(free instancetypes.FreeServers, request podRequest) int64 {
	place := scheduling.NewLabelRequirements(free.Labels)
	if free.InstanceType.Requirements.Intersects(request.requirements) != nil || place.Intersects(request.requirements) != nil {
		return 0
	}
	for i := range s.pools {
		if allows(&s.pools[i], free.InstanceType, place, request) {
			return request.perServer(free.InstanceType.Allocatable())
		}
	}
	return 0
}

func allows(pool *karpenterv1.NodePool, instanceType *cloudprovider.InstanceType, place scheduling.Requirements, request podRequest) bool {
	template := &pool.Spec.Template
	requirements := scheduling.NewNodeSelectorRequirementsWithMinValues(template.Spec.Requirements...)
	requirements.Add(scheduling.NewLabelRequirements(template.Labels).Values()...)
	return scheduling.Taints(template.Spec.Taints).ToleratesPod(request.pod) == nil &&
		requirements.Intersects(request.requirements) == nil &&
		instanceType.Requirements.Intersects(requirements) == nil &&
		place.Intersects(requirements) == nil
}
