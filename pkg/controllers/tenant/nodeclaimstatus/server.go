// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaimstatus

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// failures are the reasons that a running node may soon lose its server.
var failures = map[string]bool{
	v1alpha1.ReasonHostError:    true,
	v1alpha1.ReasonHostLost:     true,
	v1alpha1.ReasonHostDeleting: true,
}

// stageDedupeTimeout is longer than a Machine is at one stage.
const stageDedupeTimeout = 24 * time.Hour

// minStageDuration is how long a Machine must be at a stage before the NodeClaim shows it. A healthy server passes some
// stages at once, and each would cost a write of the NodeClaim and an event.
const minStageDuration = 2 * time.Second

// minOwnDuration is the duration for the stage that this provider ends itself, by writing the join of the server. In a
// burst it has many joins to write, and would also report each one that it is about to write.
const minOwnDuration = 10 * time.Second

// untilWritten returns how long to wait before the stage of the Machine is written. Errors, and a ready server, are
// written at once. A stage that begins in the future is from another clock, so there is no wait.
func (c *Controller) untilWritten(machine *v1alpha1.Machine) time.Duration {
	progress := machine.Status.Progress
	ready := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady)
	if progress == nil || ready.Status == metav1.ConditionTrue || v1alpha1.IsWarning(ready.Reason) {
		return 0
	}
	least := minStageDuration
	if ready.Reason == v1alpha1.ReasonWaitingForBootstrapData {
		least = minOwnDuration
	}
	if age := c.clock.Since(progress.LastProgressTime.Time); age >= 0 && age < least {
		return least - age
	}
	return 0
}

// setServerReady sets ServerReady on the NodeClaim to the Machine's condition Ready. It returns the events to publish,
// and the delay before the next check.
func (c *Controller) setServerReady(nodeClaim *karpv1.NodeClaim, machine *v1alpha1.Machine) ([]events.Event, time.Duration) {
	if machine == nil {
		return nil, 0
	}
	if wait := c.untilWritten(machine); wait > 0 {
		return nil, wait
	}
	ready := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionReady)
	before := conditions.Find(nodeClaim.Status.Conditions, v1alpha1.ConditionServerReady)
	if !conditions.Set(&nodeClaim.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionServerReady, Status: ready.Status, Reason: ready.Reason, Message: ready.Message,
		LastTransitionTime: metav1.NewTime(c.clock.Now()), ObservedGeneration: nodeClaim.Generation,
	}) {
		return nil, 0
	}
	stage := ptr.Deref(machine.Status.Progress, v1alpha1.MachineProgress{}).Stage
	published := newEvent(nodeClaim, ready.Reason, ready.Message, string(nodeClaim.UID), string(stage))
	if before.Reason == ready.Reason {
		// Only the time in the message may have changed: there is one event for each stage.
		published.DedupeTimeout = stageDedupeTimeout
	}
	return []events.Event{published}, 0
}

// writeNode sets ServerReady on a Node when its server fails or recovers. It changes nothing else on the node: Metal3
// only reports that it cannot reach the server's BMC, and the pods may well run on. To replace these nodes, enable
// Karpenter's NodeRepair.
func (c *Controller) writeNode(ctx context.Context, node *corev1.Node, ready metav1.Condition) error {
	index := slices.IndexFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == v1alpha1.ConditionServerReady
	})
	now, fails := metav1.NewTime(c.clock.Now()), failures[ready.Reason]
	after := corev1.NodeCondition{
		Type: v1alpha1.ConditionServerReady, Status: corev1.ConditionTrue, Reason: ready.Reason, Message: ready.Message,
		LastTransitionTime: now, LastHeartbeatTime: now,
	}
	if fails {
		after.Status = corev1.ConditionFalse
	}
	stored := node.DeepCopy()
	switch {
	case index < 0 && !fails:
		return nil // the server never failed
	case index < 0:
		node.Status.Conditions = append(node.Status.Conditions, after)
	default:
		before := node.Status.Conditions[index]
		if before.Status == after.Status && before.Reason == after.Reason && (!fails || before.Message == after.Message) {
			return nil
		}
		if before.Status == after.Status {
			after.LastTransitionTime = before.LastTransitionTime
		}
		node.Status.Conditions[index] = after
	}
	// The patch merges conditions by type: the kubelet writes the others.
	if err := c.clusters.Tenant.Client.Status().Patch(ctx, node, client.StrategicMergeFrom(stored)); err != nil {
		return fmt.Errorf("writing the condition %s of node %s, %w", v1alpha1.ConditionServerReady, node.Name, err)
	}
	c.recorder.Publish(newEvent(node, after.Reason, after.Message, node.Name, after.Message))
	return nil
}
