// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// machineFor is the Machine for a NodeClaim. types are those that the NodeClaim may get.
func machineFor(nodeClaim *karpenterv1.NodeClaim, class *v1alpha1.MetalNodeClass, types []*cloudprovider.InstanceType,
	advertised func(key string) bool, options Options,
) *v1alpha1.Machine {
	labels := map[string]string{v1alpha1.NodeClaimLabelKey: nodeClaim.Name}
	if pool, found := nodeClaim.Labels[karpenterv1.NodePoolLabelKey]; found {
		labels[karpenterv1.NodePoolLabelKey] = pool
	}
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   options.Namespace,
			Name:        nodeClaim.Name,
			Labels:      labels,
			Annotations: map[string]string{v1alpha1.NodeClaimUIDAnnotationKey: string(nodeClaim.UID)},
		},
		Spec: v1alpha1.MachineSpec{
			Requirements:     requirementsFor(nodeClaim, advertised),
			Resources:        resourcesFor(nodeClaim, types),
			RequestedDrivers: driversFor(nodeClaim, types),
			Properties:       maps.Clone(class.Spec.Properties),
			TenantClusterRef: &v1alpha1.NameReference{Name: options.TenantCluster},
			// Core removes the last one once it has put labels and taints on the node: until then no pod may run.
			Taints:        append(slices.Clone(nodeClaim.Spec.Taints), karpenterv1.UnregisteredNoExecuteTaint),
			StartupTaints: slices.Clone(nodeClaim.Spec.StartupTaints),
			Labels:        maps.Clone(nodeClaim.Labels),
			KubeletArgs:   maps.Clone(class.Spec.KubeletArgs),
		},
	}
}

// resourcesFor is what the pods of the NodeClaim need. Their number is left out: core has compared it with the types that
// the requirements name, and hosts have no such resource.
//
// The NodeClaim of a static NodePool requests no resources, only types, by its requirements. If only types with
// accelerators are left, one of them is requested: otherwise the manager would refuse, as it must for Machines that request
// none.
func resourcesFor(nodeClaim *karpenterv1.NodeClaim, types []*cloudprovider.InstanceType) corev1.ResourceList {
	if len(nodeClaim.Spec.Resources.Requests) == 0 {
		return oneAccelerator(nodeClaim, types)
	}
	requests := corev1.ResourceList{}
	for name, quantity := range nodeClaim.Spec.Resources.Requests {
		if name != corev1.ResourcePods {
			requests[name] = quantity.DeepCopy()
		}
	}
	return requests
}

func oneAccelerator(nodeClaim *karpenterv1.NodeClaim, types []*cloudprovider.InstanceType) corev1.ResourceList {
	cheapest := cheapestAccelerated(nodeClaim, types)
	if cheapest == nil || len(v1alpha1.Accelerators(cheapest.Capacity)) == 0 {
		return nil
	}
	return corev1.ResourceList{v1alpha1.Accelerators(cheapest.Capacity)[0]: *resource.NewQuantity(1, resource.DecimalSI)}
}

// cheapestAccelerated is the cheapest type that a NodeClaim may get, if all of those have accelerators. It is nil if one of
// them has none.
func cheapestAccelerated(nodeClaim *karpenterv1.NodeClaim, types []*cloudprovider.InstanceType) *cloudprovider.InstanceType {
	wanted := scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...)
	var fitting cloudprovider.InstanceTypes
	for _, instanceType := range types {
		if instanceType.Requirements.Intersects(wanted) != nil {
			continue
		}
		if !accelerated(instanceType) {
			return nil
		}
		fitting = append(fitting, instanceType)
	}
	if len(fitting) == 0 {
		return nil
	}
	return fitting.OrderByPrice(wanted)[0]
}
