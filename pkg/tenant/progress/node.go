// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// troubles are the reasons for which a node that is up may have no server for much longer.
var troubles = map[string]bool{
	v1alpha1.ReasonHostError:    true,
	v1alpha1.ReasonHostLost:     true,
	v1alpha1.ReasonHostDeleting: true,
}

// tellNode says on the Node that its server is in trouble, or no more. Nothing is done to the node: what Metal3 reports
// is that it cannot reach the server's BMC, which the pods on it need not mind. Who wants such nodes replaced has
// Karpenter's NodeRepair for it.
func (c *Controller) tellNode(ctx context.Context, machine *v1alpha1.Machine, ready metav1.Condition) error {
	node := &corev1.Node{}
	if err := c.planes.Tenant.Client.Get(ctx, client.ObjectKey{Name: machine.Annotations[v1alpha1.NodeNameAnnotationKey]}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading node %s, %w", machine.Annotations[v1alpha1.NodeNameAnnotationKey], err)
	}
	if node.Spec.ProviderID != machine.Status.ProviderID {
		return nil // of that name, and not of this Machine
	}
	at := slices.IndexFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == v1alpha1.ConditionServerReady
	})
	now, inTrouble := metav1.NewTime(c.clock.Now()), troubles[ready.Reason]
	after := corev1.NodeCondition{
		Type: v1alpha1.ConditionServerReady, Status: corev1.ConditionTrue, Reason: ready.Reason, Message: ready.Message,
		LastTransitionTime: now, LastHeartbeatTime: now,
	}
	if inTrouble {
		after.Status = corev1.ConditionFalse
	}
	stored := node.DeepCopy()
	switch {
	case at < 0 && !inTrouble:
		return nil // nodes whose server is well have nothing to say of it
	case at < 0:
		node.Status.Conditions = append(node.Status.Conditions, after)
	default:
		before := node.Status.Conditions[at]
		if before.Status == after.Status && before.Reason == after.Reason && (!inTrouble || before.Message == after.Message) {
			return nil
		}
		if before.Status == after.Status {
			after.LastTransitionTime = before.LastTransitionTime
		}
		node.Status.Conditions[at] = after
	}
	// Merged by the type of the condition: kubelet writes the others.
	if err := c.planes.Tenant.Client.Status().Patch(ctx, node, client.StrategicMergeFrom(stored)); err != nil {
		return fmt.Errorf("writing the condition %s of node %s, %w", v1alpha1.ConditionServerReady, node.Name, err)
	}
	c.recorder.Publish(eventOn(node, after.Reason, after.Message, node.Name, after.Message))
	return nil
}
