// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// reasonServerGivenUp is the reason of the events that tell that a NodeClaim is deleted because of its server.
const reasonServerGivenUp = "ServerGivenUp"

// giveUp deletes the NodeClaim of a Machine that the manager has given up: Karpenter finds another server for its pods,
// and the Machine goes with it. The NodePool hears of it too, since nobody sees the events of what is gone. A node that has
// registered all the same is spared: the manager has not heard of it in time, as when the provider was down, and pods run
// there.
func (c *Controller) giveUp(ctx context.Context, machine *v1alpha1.Machine, nodeClaim *karpv1.NodeClaim) error {
	live := &v1alpha1.Machine{}
	if err := c.planes.Management.Live.Get(ctx, client.ObjectKeyFromObject(machine), live); err != nil {
		if tenant.IsGone(err) {
			return nil
		}
		return fmt.Errorf("reading machine %s, which has been given up, %w", client.ObjectKeyFromObject(machine), err)
	}
	givenUp := meta.FindStatusCondition(live.Status.Conditions, v1alpha1.ConditionGivenUp)
	if live.UID != machine.UID || givenUp == nil || givenUp.Status != "True" {
		return nil
	}
	known := nodeClaim
	nodeClaim = &karpv1.NodeClaim{}
	if err := c.planes.Tenant.Live.Get(ctx, client.ObjectKeyFromObject(known), nodeClaim); err != nil {
		if tenant.IsGone(err) {
			return nil
		}
		return fmt.Errorf("reading nodeclaim %s, whose server has been given up, %w", known.Name, err)
	}
	if !tenant.MadeFor(live, nodeClaim) || !nodeClaim.DeletionTimestamp.IsZero() {
		return nil
	}
	if hasRegistered(nodeClaim) {
		c.recorder.Publish(events.Event{
			InvolvedObject: nodeClaim, Type: corev1.EventTypeWarning, Reason: reasonServerGivenUp,
			Message:      eventMessage(fmt.Sprintf("its server has been given up, and its node is up all the same and stays: delete the NodeClaim when its pods can go (%s)", givenUp.Message)),
			DedupeValues: []string{string(nodeClaim.UID)},
		})
		return nil
	}
	if err := c.planes.Tenant.Client.Delete(ctx, nodeClaim, client.Preconditions{UID: &nodeClaim.UID}); err != nil {
		if tenant.IsGone(err) {
			return nil
		}
		return fmt.Errorf("deleting nodeclaim %s, whose server has been given up, %w", nodeClaim.Name, err)
	}
	message := fmt.Sprintf("NodeClaim %s is deleted, and another server is looked for: %s", nodeClaim.Name, givenUp.Message)
	log.FromContext(ctx).Info("deleted nodeclaim whose server was given up", "nodeClaim", nodeClaim.Name, "why", givenUp.Message)
	for _, object := range c.whoCares(ctx, nodeClaim) {
		c.recorder.Publish(events.Event{
			InvolvedObject: object, Type: corev1.EventTypeWarning, Reason: reasonServerGivenUp, Message: eventMessage(message),
			DedupeValues: []string{object.GetName(), string(nodeClaim.UID)},
		})
	}
	return nil
}

func hasRegistered(nodeClaim *karpv1.NodeClaim) bool {
	return slices.ContainsFunc(nodeClaim.Status.Conditions, func(condition status.Condition) bool {
		return condition.Type == karpv1.ConditionTypeRegistered && condition.IsTrue()
	})
}

func (c *Controller) whoCares(ctx context.Context, nodeClaim *karpv1.NodeClaim) []client.Object {
	objects, nodePool := []client.Object{nodeClaim}, &karpv1.NodePool{}
	if name := nodeClaim.Labels[karpv1.NodePoolLabelKey]; name != "" && c.planes.Tenant.Client.Get(ctx, client.ObjectKey{Name: name}, nodePool) == nil {
		objects = append(objects, nodePool)
	}
	return objects
}
