// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaimstatus

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/tenant"
)

// reasonServerGivenUp: the manager has given up the server of the NodeClaim. An event on the NodeClaim.
const reasonServerGivenUp = "ServerGivenUp"

// giveUp deletes the NodeClaim of a Machine that the manager has given up: Karpenter finds another server for its pods,
// and the Machine is deleted with it. If the node has registered all the same, it stays, because pods run there: the
// manager did not learn of it in time, for example because the provider was down. Core was down then, too, so giveUp
// also looks for the Node itself.
func (c *Controller) giveUp(ctx context.Context, cachedMachine *v1alpha1.Machine, cachedNodeClaim *karpv1.NodeClaim) error {
	machine, nodeClaim := &v1alpha1.Machine{}, &karpv1.NodeClaim{}
	if found, err := kube.Find(ctx, c.clusters.Management.Live, client.ObjectKeyFromObject(cachedMachine), machine); err != nil || !found {
		return err
	}
	if machine.UID != cachedMachine.UID || !meta.IsStatusConditionTrue(machine.Status.Conditions, v1alpha1.ConditionGivenUp) {
		return nil
	}
	if found, err := kube.Find(ctx, c.clusters.Tenant.Live, client.ObjectKeyFromObject(cachedNodeClaim), nodeClaim); err != nil || !found {
		return err
	}
	if !tenant.MadeFor(machine, nodeClaim) || !nodeClaim.DeletionTimestamp.IsZero() {
		return nil
	}
	why := conditions.Find(machine.Status.Conditions, v1alpha1.ConditionGivenUp).Message
	node, err := c.clusters.NodeOf(ctx, machine.Status.ProviderID)
	if err != nil {
		return err
	}
	if node != nil || tenant.HasRegistered(nodeClaim) {
		c.recorder.Publish(tenant.Warning(nodeClaim, reasonServerGivenUp, fmt.Sprintf(
			"its server has been given up, and its node is up all the same and stays: delete the NodeClaim when its pods "+
				"can go (%s)", why)))
		return nil
	}
	if err := c.clusters.Tenant.Client.Delete(ctx, nodeClaim, client.Preconditions{UID: &nodeClaim.UID}); kube.IsGone(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("deleting nodeclaim %s, whose server has been given up, %w", nodeClaim.Name, err)
	}
	log.FromContext(ctx).Info("deleted nodeclaim whose server was given up", "nodeClaim", nodeClaim.Name, "why", why)
	for _, object := range c.withNodePool(ctx, nodeClaim) {
		c.recorder.Publish(tenant.Warning(object, reasonServerGivenUp,
			fmt.Sprintf("NodeClaim %s is deleted, and another server is looked for: %s", nodeClaim.Name, why)))
	}
	return nil
}

// withNodePool returns the NodeClaim and its NodePool, if it has one: few people look at the events of deleted objects.
func (c *Controller) withNodePool(ctx context.Context, nodeClaim *karpv1.NodeClaim) []client.Object {
	objects, nodePool := []client.Object{nodeClaim}, &karpv1.NodePool{}
	if name := nodeClaim.Labels[karpv1.NodePoolLabelKey]; name != "" &&
		c.clusters.Tenant.Client.Get(ctx, client.ObjectKey{Name: name}, nodePool) == nil {
		objects = append(objects, nodePool)
	}
	return objects
}
