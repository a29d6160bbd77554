// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/capacity"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// nodeClaimOf is the NodeClaim of a claimed Machine. It has no capacity if the NodeType does not exist any more.
func (c *CloudProvider) nodeClaimOf(machine *v1alpha1.Machine) *karpenterv1.NodeClaim {
	var instanceType *cloudprovider.InstanceType
	if reference := machine.Status.NodeTypeRef; reference != nil {
		if found, ok := c.management.Catalog.InstanceType(reference.Name); ok {
			kubelet, _ := capacity.ParseKubelet(machine.Spec.KubeletArgs)
			instanceType = instancetypes.WithKubelet(found, kubelet)
		}
	}
	nodeClaim := &karpenterv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:              machine.Labels[v1alpha1.NodeClaimLabelKey],
			UID:               types.UID(machine.Annotations[v1alpha1.NodeClaimUIDAnnotationKey]),
			CreationTimestamp: machine.CreationTimestamp,
			DeletionTimestamp: machine.DeletionTimestamp,
			Labels:            labelsOf(machine, instanceType),
		},
		Status: karpenterv1.NodeClaimStatus{ProviderID: machine.Status.ProviderID},
	}
	if instanceType != nil {
		nodeClaim.Status.Capacity = instanceType.Capacity.DeepCopy()
		delete(nodeClaim.Status.Capacity, v1alpha1.ResourceNodes)
		nodeClaim.Status.Allocatable = instanceType.Allocatable().DeepCopy()
		delete(nodeClaim.Status.Allocatable, v1alpha1.ResourceNodes)
	}
	return nodeClaim
}

// labelsOf are the labels of the node as far as they follow from the server, with those that Karpenter needs in order
// to consolidate it: type, zone, capacity type.
func labelsOf(machine *v1alpha1.Machine, instanceType *cloudprovider.InstanceType) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, machine.Status.NodeLabels)
	if pool, found := machine.Labels[karpenterv1.NodePoolLabelKey]; found {
		labels[karpenterv1.NodePoolLabelKey] = pool
	}
	if reference := machine.Status.NodeTypeRef; reference != nil {
		labels[corev1.LabelInstanceTypeStable] = reference.Name
		labels[v1alpha1.NodeTypeLabelKey] = reference.Name
	}
	if instanceType == nil {
		return labels
	}
	offering := instanceType.Offerings[0] // the one for nodes that exist
	labels[karpenterv1.CapacityTypeLabelKey] = offering.CapacityType()
	if offering.CapacityType() == karpenterv1.CapacityTypeReserved {
		labels[v1alpha1.ReservationIDLabelKey] = offering.ReservationID()
	}
	return labels
}
