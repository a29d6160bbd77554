// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// nodeClassOf returns the MetalNodeClass that a NodeClaim refers to, if it is ready. A class that does not exist and
// one that is not ready end the NodeClaim, as with other providers: its pods are scheduled anew.
func (c *CloudProvider) nodeClassOf(ctx context.Context, nodeClaim *karpenterv1.NodeClaim) (*v1alpha1.MetalNodeClass, error) {
	reference := nodeClaim.Spec.NodeClassRef
	if reference == nil {
		return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("NodeClaim %s has no nodeClassRef", nodeClaim.Name))
	}
	class := &v1alpha1.MetalNodeClass{}
	if err := c.tenant.Get(ctx, types.NamespacedName{Name: reference.Name}, class); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("MetalNodeClass %s does not exist", reference.Name))
		}
		return nil, fmt.Errorf("reading MetalNodeClass %s, %w", reference.Name, err)
	}
	if !class.DeletionTimestamp.IsZero() {
		return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("MetalNodeClass %s is being deleted", reference.Name))
	}
	ready := class.StatusConditions().Root()
	switch {
	case ready != nil && ready.ObservedGeneration != class.Generation:
		// It was changed a moment ago, and what is said of it is about how it was.
	case ready.IsTrue():
		return class, nil
	case ready.IsFalse():
		return nil, cloudprovider.NewNodeClassNotReadyError(fmt.Errorf("MetalNodeClass %s, %s", reference.Name, whyNot(class)))
	}
	err := fmt.Errorf("whether MetalNodeClass %s is ready is not known yet", reference.Name)
	return nil, cloudprovider.NewCreateError(err, reasonNodeClassUnknown, err.Error())
}

// whyNot says what the conditions of a class that is not ready say. That of Ready itself only names the others.
func whyNot(class *v1alpha1.MetalNodeClass) string {
	var reasons []string
	for _, condition := range class.Status.Conditions {
		if condition.Type != status.ConditionReady && condition.Status == metav1.ConditionFalse {
			reasons = append(reasons, condition.Reason+": "+condition.Message)
		}
	}
	return strings.Join(reasons, "; ")
}

// GetInstanceTypes returns the types that the tenant may have and that the class of the NodePool offers, also those
// that are exhausted. While it is not known which those are, it returns an error: core takes the nodes of a type that
// is missing for drifted.
func (c *CloudProvider) GetInstanceTypes(ctx context.Context, nodePool *karpenterv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	class := &v1alpha1.MetalNodeClass{}
	if nodePool != nil {
		reference := nodePool.Spec.Template.Spec.NodeClassRef
		if reference == nil {
			return nil, fmt.Errorf("NodePool %s has no nodeClassRef", nodePool.Name)
		}
		if err := c.tenant.Get(ctx, types.NamespacedName{Name: reference.Name}, class); err != nil {
			return nil, fmt.Errorf("reading MetalNodeClass %s of NodePool %s, %w", reference.Name, nodePool.Name, err)
		}
	}
	return c.instanceTypes(ctx, class)
}

func (c *CloudProvider) instanceTypes(ctx context.Context, class *v1alpha1.MetalNodeClass) ([]*cloudprovider.InstanceType, error) {
	tenant, allowance, err := c.tenantCluster(ctx)
	if err != nil {
		return nil, err
	}
	return allowance.Narrow(c.management.Catalog.InstanceTypes(instancetypes.NewFilter(tenant, class))), nil
}

// Rooms are the servers that the tenant could have now, by type and place, whatever the class of a NodePool. Until they
// are known, it returns an error.
func (c *CloudProvider) Rooms(ctx context.Context) ([]instancetypes.Room, error) {
	tenant, allowance, err := c.tenantCluster(ctx)
	if err != nil {
		return nil, err
	}
	return allowance.Bound(c.management.Catalog.Rooms(instancetypes.NewFilter(tenant, nil))), nil
}

// tenantCluster returns the tenant, and how much more it may have.
func (c *CloudProvider) tenantCluster(ctx context.Context) (*v1alpha1.TenantCluster, instancetypes.Allowance, error) {
	if err := c.management.Synced(); err != nil {
		return nil, instancetypes.Allowance{}, fmt.Errorf("listing instance types, %w", err)
	}
	tenant := &v1alpha1.TenantCluster{}
	key := types.NamespacedName{Namespace: c.options.Namespace, Name: c.options.TenantCluster}
	if err := c.management.Client.Get(ctx, key, tenant); err != nil {
		return nil, instancetypes.Allowance{}, fmt.Errorf("reading TenantCluster %s in the management cluster, %w", key, err)
	}
	allowance, err := c.allowanceOf(ctx, tenant)
	return tenant, allowance, err
}
