// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// warnings are the reasons that somebody may have to do something about.
var warnings = map[string]bool{
	v1alpha1.ReasonDeadlineExceeded: true,
	v1alpha1.ReasonHostError:        true,
	v1alpha1.ReasonHostLost:         true,
	v1alpha1.ReasonHostDeleting:     true,
	v1alpha1.ReasonInvalidSpec:      true,
	v1alpha1.ReasonNoAddress:        true,
}

// tellNodeClaim writes the Machine's condition Ready as the NodeClaim's condition ServerReady, and makes an event of what
// is new in it. That time passes is not.
func (c *Controller) tellNodeClaim(ctx context.Context, nodeClaim *karpv1.NodeClaim, ready metav1.Condition) error {
	before, stored := conditionOf(nodeClaim), nodeClaim.DeepCopy()
	after := metav1.Condition{
		Type: v1alpha1.ConditionServerReady, Status: ready.Status, Reason: ready.Reason, Message: ready.Message,
		LastTransitionTime: before.LastTransitionTime, ObservedGeneration: nodeClaim.Generation,
	}
	if before.Status != after.Status {
		after.LastTransitionTime = metav1.NewTime(c.clock.Now())
	}
	if before == after {
		return nil
	}
	setCondition(nodeClaim, after)
	if err := c.planes.Tenant.Client.Status().Patch(ctx, nodeClaim, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing the condition %s of nodeclaim %s, %w", v1alpha1.ConditionServerReady, nodeClaim.Name, err)
	}
	if before.Reason != after.Reason || stageIn(before.Message) != stageIn(after.Message) {
		c.recorder.Publish(eventOn(nodeClaim, after.Reason, after.Message, string(nodeClaim.UID), stageIn(after.Message)))
	}
	return nil
}

// stageIn is the part of a message that says where a Machine is, without how long it has been on its way. It is empty for
// messages that do not say so.
func stageIn(message string) string {
	where, _, found := strings.Cut(message, ", step ")
	if !found {
		return ""
	}
	return where
}

func eventOn(object client.Object, reason, message string, dedupe ...string) events.Event {
	kind := corev1.EventTypeNormal
	if warnings[reason] {
		kind = corev1.EventTypeWarning
	}
	return events.Event{InvolvedObject: object, Type: kind, Reason: reason, Message: eventMessage(message), DedupeValues: dedupe}
}

// maxEventMessage is how many bytes the API server takes in the message of an event.
const maxEventMessage = 1024

func eventMessage(message string) string {
	if len(message) <= maxEventMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxEventMessage-len(ellipsis)], "") + ellipsis
}

const ellipsis = " ..."

// conditionOf is what a NodeClaim says of its server, zero if it says nothing. It does not go by StatusConditions, which
// adds the conditions that core wants to see.
func conditionOf(nodeClaim *karpv1.NodeClaim) metav1.Condition {
	for _, condition := range nodeClaim.Status.Conditions {
		if condition.Type == v1alpha1.ConditionServerReady {
			return metav1.Condition(condition)
		}
	}
	return metav1.Condition{}
}

func setCondition(nodeClaim *karpv1.NodeClaim, condition metav1.Condition) {
	for i := range nodeClaim.Status.Conditions {
		if nodeClaim.Status.Conditions[i].Type == condition.Type {
			nodeClaim.Status.Conditions[i] = status.Condition(condition)
			return
		}
	}
	nodeClaim.Status.Conditions = append(nodeClaim.Status.Conditions, status.Condition(condition))
}
