// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaimstatus

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/shell"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/resourceclaims"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// DefaultResourcesGrace is how long after its registration a node may take to advertise all its resources. Operators
// that install drivers take several minutes.
const DefaultResourcesGrace = 10 * time.Minute

// firstSeen is when a NodeClaim was first seen to lack resources.
type firstSeen struct {
	nodeClaim types.UID
	time      time.Time
}

// setResourcesAdvertised sets ResourcesAdvertised on a NodeClaim: False if the node advertises fewer accelerators than
// its NodeType has, True when they are there after all. It returns the events to publish, and the delay before the next
// check. Without a device plugin for the GPUs, core waits for the node without limit, and neither the pod nor the node
// shows why.
func (c *Controller) setResourcesAdvertised(ctx context.Context, nodeClaim *karpv1.NodeClaim,
	node *corev1.Node) ([]events.Event, time.Duration, error) {
	if node == nil || nodeClaim.Status.NodeName == "" {
		c.forget(nodeClaim.Name)
		return nil, 0, nil
	}
	missing, err := c.missing(ctx, nodeClaim, node)
	if err != nil {
		return nil, 0, err
	}
	before := conditions.Find(nodeClaim.Status.Conditions, v1alpha1.ConditionResourcesAdvertised)
	after := metav1.Condition{
		Type: v1alpha1.ConditionResourcesAdvertised, LastTransitionTime: metav1.NewTime(c.clock.Now()), ObservedGeneration: nodeClaim.Generation,
	}
	switch {
	// 1. All resources are there.
	case len(missing) == 0:
		c.forget(nodeClaim.Name)
		if before.Status != metav1.ConditionFalse {
			return nil, 0, nil
		}
		after.Status, after.Reason = metav1.ConditionTrue, v1alpha1.ReasonResourcesAdvertised
		after.Message = "node " + node.Name + " advertises all resources of its NodeType"
	// 2. Some are missing. The grace is for resources that have just gone missing.
	default:
		wait := c.firstMissing(nodeClaim).Add(c.grace).Sub(c.clock.Now())
		if wait > 0 && before.Status != metav1.ConditionFalse {
			return nil, wait, nil
		}
		after.Status, after.Reason = metav1.ConditionFalse, v1alpha1.ReasonResourcesMissing
		after.Message = describeMissing(node.Name, nodeClaim.Labels[corev1.LabelInstanceTypeStable], missing, c.grace)
	}
	if !conditions.Set(&nodeClaim.Status.Conditions, after) {
		return nil, 0, nil
	}
	return []events.Event{
		newEvent(nodeClaim, after.Reason, after.Message, nodeClaim.Name, after.Message),
		newEvent(node, after.Reason, after.Message, node.Name, after.Message),
	}, 0, nil
}

// missing returns the accelerators that a node has fewer of than its NodeType declares. A device that a driver has
// published counts for the resource of its class.
func (c *Controller) missing(ctx context.Context, nodeClaim *karpv1.NodeClaim, node *corev1.Node) ([]string, error) {
	has, declared := node.Status.Allocatable, nodeClaim.Status.Capacity
	if len(missingResources(declared, has)) == 0 {
		return nil, nil
	}
	published, err := resourceclaims.Published(ctx, c.clusters.Tenant.Client, node.Name, v1alpha1.Extended(declared))
	if meta.IsNoMatchError(err) { // the cluster has no device classes
		err = nil
	}
	return missingResources(declared, resources.MaxResources(has, published)), err
}

func (c *Controller) firstMissing(nodeClaim *karpv1.NodeClaim) time.Time {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.missingSince[nodeClaim.Name].nodeClaim != nodeClaim.UID {
		c.missingSince[nodeClaim.Name] = firstSeen{nodeClaim: nodeClaim.UID, time: c.clock.Now()}
	}
	return c.missingSince[nodeClaim.Name].time
}

func (c *Controller) forget(nodeClaim string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	delete(c.missingSince, nodeClaim)
}

// missingResources lists the accelerators that a node advertises fewer of than its type has, for example "7 of 8
// nvidia.com/gpu". It does not compare CPU and memory: the kubelet measures them, and always a little less.
func missingResources(declared, advertised corev1.ResourceList) (missing []string) {
	for _, name := range v1alpha1.Extended(declared) {
		should, has := declared[name], advertised[name]
		if has.Cmp(should) >= 0 {
			continue
		}
		count := has.String()
		if has.IsZero() {
			count = "none"
		}
		missing = append(missing, fmt.Sprintf("%s of %s %s", count, should.String(), name))
	}
	return missing
}

// describeMissing describes which resources a node lacks, and where to look for the cause.
func describeMissing(node, nodeType string, missing []string, grace time.Duration) string {
	return fmt.Sprintf("node %s has registered, and %s later advertises %s that NodeType %s declares. Look at: "+
		"the OS image (has it the driver, and does that load: dmesg and the vendor's tool, such as nvidia-smi, on the server); "+
		"the container runtime (is it set up for the devices); "+
		"the device plugin or GPU operator in this cluster (%s, and their logs); "+
		"and whether the NodeType is correct",
		node, grace, strings.Join(missing, " and "), nodeType, shell.Command("kubectl get pods -A --field-selector spec.nodeName=%s", node))
}
