// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaimstatus

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

var smallerNodes = prometheus.NewCounterVec(prometheus.CounterOpts{
	Namespace: "karpenter_metal3",
	Name:      "nodes_smaller_than_planned_total",
	Help:      "Nodes that have less cpu, memory, disk or room for pods than Karpenter has planned with.",
}, []string{"nodetype"})

func init() { metrics.Registry.MustRegister(smallerNodes) }

// isInitialized reports whether core has seen the node ready. A kubelet that has just started does not know its disk.
func isInitialized(nodeClaim *karpv1.NodeClaim) bool {
	return conditions.Find(nodeClaim.Status.Conditions, karpv1.ConditionTypeInitialized).Status == metav1.ConditionTrue
}

// setNodeAsPlanned sets NodeAsPlanned on the NodeClaim of a node with less room for pods than was planned at its
// launch. It returns the events to publish.
func (c *Controller) setNodeAsPlanned(nodeClaim *karpv1.NodeClaim, node *corev1.Node) []events.Event {
	if node == nil || !isInitialized(nodeClaim) ||
		conditions.Find(nodeClaim.Status.Conditions, v1alpha1.ConditionNodeAsPlanned).Status == metav1.ConditionFalse {
		return nil
	}
	var less []string
	for _, name := range append(capacity.Measured(), corev1.ResourcePods) {
		planned := nodeClaim.Status.Allocatable[name]
		if has, reported := node.Status.Allocatable[name]; reported && has.Cmp(planned) < 0 {
			less = append(less, fmt.Sprintf("%s %s of %s", name, has.String(), planned.String()))
		}
	}
	if len(less) == 0 {
		return nil
	}
	nodeType := nodeClaim.Labels[corev1.LabelInstanceTypeStable]
	message := fmt.Sprintf("node %s of NodeType %s has less for pods than Karpenter has planned with: %s. Pods that were planned for it "+
		"may wait. Correct resources or overhead of the NodeType, or kubeletArgs of the pool or the MetalNodeClass, so that "+
		"they say what the kubelet sets aside", node.Name, nodeType, strings.Join(less, ", "))
	conditions.Set(&nodeClaim.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionNodeAsPlanned, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNodeSmaller, Message: message,
		LastTransitionTime: metav1.NewTime(c.clock.Now()), ObservedGeneration: nodeClaim.Generation,
	})
	smallerNodes.WithLabelValues(nodeType).Inc()
	return []events.Event{
		newEvent(nodeClaim, v1alpha1.ReasonNodeSmaller, message, nodeClaim.Name),
		newEvent(node, v1alpha1.ReasonNodeSmaller, message, node.Name),
	}
}

// reportSize writes the size of the node on the Machine, once: for the catalog, and for events about small nodes.
func (c *Controller) reportSize(ctx context.Context, machine *v1alpha1.Machine, nodeClaim *karpv1.NodeClaim, node *corev1.Node) error {
	if node == nil || !isInitialized(nodeClaim) || machine.Status.NodeTypeRef == nil ||
		machine.ReportedNode().Resources != nil {
		return nil
	}
	nodeType := &v1alpha1.NodeType{}
	key := client.ObjectKey{Name: machine.Status.NodeTypeRef.Name}
	found, err := kube.Find(ctx, c.clusters.Management.Client, key, nodeType)
	kubelet, wrong := capacity.ParseKubelet(machine.Spec.KubeletArgs)
	if err != nil || !found || wrong != nil {
		return err
	}
	size := kubelet.MaxCapacity(capacity.ServerOf(nodeType, nil), node.Status.Allocatable)
	return kube.PatchOwn(ctx, c.clusters.Management.Client, machine, "writing the size of its node into", func() {
		machine.ReportNode(func(reported *v1alpha1.MachineNode) { reported.Resources = size })
	})
}
