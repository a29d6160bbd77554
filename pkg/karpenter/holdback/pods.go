// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package holdback keeps pods off new servers of a type whose nodes do not take them.
//
// Core plans with the resources and taints of the type, and later with the actual ones of the node. If a node has less
// than was planned, or a taint that nobody planned with, its pods do not fit. Then core launches the next server of the
// same type for them, without end.
//
// The result of CloudProvider.HoldBack becomes a requirement for new nodes, as in package accelerators: the type has a
// label, and the pod requires that the label does not exist. No node has it, so the pods fit existing nodes.
//
// Pods wait for nodes that start, and for nodes that kube-scheduler has nominated for them (nodes.go).
package holdback

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/cloudprovider"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// Core answers questions about pods.
type Core struct {
	Client  client.Client
	Cluster *state.Cluster
	// Provisioner comes later: it is made after the client that it reads with.
	Provisioner func() *provisioning.Provisioner
}

// Pods adds the requirements to the pending pods that core lists. It must come before any change of the affinity of
// pods, which is part of their size.
func Pods(servers *cloudprovider.CloudProvider, core Core) interceptor.Interceptor {
	return interceptor.OnList(func(ctx context.Context, pods *corev1.PodList, opts []client.ListOption) error {
		if !interceptor.SelectsPending(opts) {
			return nil
		}
		labels, err := servers.HoldBack(ctx, pods.Items, core.Cluster.PodNodeClaimMapping, core.takes)
		if err != nil {
			return err
		}
		for i := range pods.Items {
			for _, key := range labels[pods.Items[i].UID] {
				pods.Items[i].Spec.Affinity = interceptor.WithNodeRequirements(pods.Items[i].Spec.Affinity,
					corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist})
			}
		}
		return nil
	})
}

// takes reports whether core finds room for a pod on the node of a NodeClaim, if there are no other pods and nodes. It
// ignores the fields that make a pod depend on others. The devices of an allocated claim may be where another pod runs.
// takes returns true where core cannot tell.
func (c Core) takes(ctx context.Context, pod *corev1.Pod, nodeClaim string) bool {
	if len(pod.Spec.ResourceClaims) > 0 && options.FromContext(ctx).IgnoreDRARequests {
		return true
	}
	for _, claim := range pod.Spec.ResourceClaims {
		if claim.ResourceClaimName == nil {
			continue
		}
		object := &resourcev1.ResourceClaim{}
		found, err := kube.Find(ctx, c.Client, client.ObjectKey{Namespace: pod.Namespace, Name: *claim.ResourceClaimName}, object)
		if err != nil || found && object.Status.Allocation != nil {
			return true
		}
	}
	var nodes []*state.StateNode
	for node := range c.Cluster.Nodes() {
		if node.NodeClaim != nil && node.NodeClaim.Name == nodeClaim && !node.MarkedForDeletion() {
			nodes = append(nodes, node.DeepCopy())
		}
	}
	if len(nodes) != 1 {
		return true
	}
	alone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Spec: *pod.Spec.DeepCopy()}
	alone.Spec.TopologySpreadConstraints, alone.Spec.Volumes = nil, nil
	if alone.Spec.Affinity != nil {
		alone.Spec.Affinity.PodAffinity, alone.Spec.Affinity.PodAntiAffinity = nil, nil
	}
	ctx, cancel := context.WithTimeout(log.IntoContext(ctx, logr.Discard()), time.Minute)
	defer cancel()
	scheduler, err := c.Provisioner().NewScheduler(ctx, []*corev1.Pod{alone}, nodes, nil)
	if err != nil {
		return true
	}
	results, err := scheduler.Solve(ctx, []*corev1.Pod{alone})
	return err != nil || len(results.ExistingNodes) > 0 && len(results.ExistingNodes[0].Pods) > 0
}
