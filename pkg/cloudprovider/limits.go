// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// createWithinLimits creates the Machine unless its NodePool has reached limits.nodes. Then the error is an
// InsufficientCapacityError. Core plans within the limit, but exceeds it with nodes that replace others, and when the limit
// is lowered while it plans.
func (c *CloudProvider) createWithinLimits(ctx context.Context, nodePool *karpenterv1.NodePool,
	wanted *v1alpha1.Machine) (*v1alpha1.Machine, error) {
	if nodePool == nil {
		return c.createMachine(ctx, wanted)
	}
	quantity, limited := nodePool.Spec.Limits[v1alpha1.ResourceNodes]
	if !limited {
		return c.createMachine(ctx, wanted)
	}
	pool, limit := nodePool.Name, quantity.Value()
	count, err := c.limits.assume(ctx, c.machinesOf(pool, wanted), pool, wanted.Name, limit)
	if err != nil {
		return nil, createError(reasonManagementUnavailable, fmt.Errorf("counting the machines of NodePool %s, %w", pool, err))
	}
	if count >= limit {
		c.refusals.recordNoServer(pool, c.clock.Now())
		return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf(
			"NodePool %s has %d nodes and may have %d: raise its limits.nodes, or wait until a node is released", pool, count, limit))
	}
	machine, err := c.createMachine(ctx, wanted)
	notAdmitted := (*notAdmittedError)(nil)
	c.limits.finish(pool, wanted.Name, errors.As(err, &notAdmitted))
	return machine, err
}

// machinesOf lists the names of the Machines of a tenant's NodePool that are not being deleted.
func (c *CloudProvider) machinesOf(pool string, wanted *v1alpha1.Machine) machineLister {
	return func(ctx context.Context, live bool) (map[string]bool, error) {
		reader, options := client.Reader(c.management.Client), []client.ListOption{
			client.InNamespace(wanted.Namespace), client.MatchingLabels{karpenterv1.NodePoolLabelKey: pool}, client.UnsafeDisableDeepCopy,
		}
		if live {
			reader = c.management.Live
		}
		machines := &v1alpha1.MachineList{}
		if err := reader.List(ctx, machines, options...); err != nil {
			return nil, fmt.Errorf("listing machines, %w", err)
		}
		names := map[string]bool{}
		for i := range machines.Items {
			reference := machines.Items[i].Spec.TenantClusterRef
			if reference != nil && *reference == *wanted.Spec.TenantClusterRef && machines.Items[i].DeletionTimestamp.IsZero() {
				names[machines.Items[i].Name] = true
			}
		}
		return names, nil
	}
}

// nodePoolOf returns the NodePool of a NodeClaim, or nil if there is none: core deletes the NodeClaims of one that is gone.
func (c *CloudProvider) nodePoolOf(ctx context.Context, nodeClaim *karpenterv1.NodeClaim) (*karpenterv1.NodePool, error) {
	name, found := nodeClaim.Labels[karpenterv1.NodePoolLabelKey]
	if !found {
		return nil, nil
	}
	nodePool := &karpenterv1.NodePool{}
	err := c.tenant.Get(ctx, types.NamespacedName{Name: name}, nodePool)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading NodePool %s, %w", name, err)
	}
	return nodePool, nil
}
