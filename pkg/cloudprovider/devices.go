// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"slices"
	"strings"

	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// maxDrivers is how many drivers a Machine can name.
const maxDrivers = 32

// driversFor are the DRA drivers whose devices core has allocated to the claims of the NodeClaim's pods. The NodeClaim of a
// static NodePool has no pods: if only types with accelerators are left, and the cheapest has only devices, its driver is
// requested.
func driversFor(nodeClaim *karpenterv1.NodeClaim, types []*cloudprovider.InstanceType) []string {
	if requested := requestedDrivers(nodeClaim); len(requested) > 0 {
		return requested[:min(len(requested), maxDrivers)]
	}
	if len(nodeClaim.Spec.Resources.Requests) > 0 {
		return nil
	}
	cheapest := cheapestAccelerated(nodeClaim, types)
	if cheapest == nil || len(v1alpha1.Accelerators(cheapest.Capacity)) > 0 {
		return nil
	}
	return drivers(cheapest)[:1]
}

// requestedDrivers are those that core has written on the NodeClaim, sorted.
func requestedDrivers(nodeClaim *karpenterv1.NodeClaim) []string {
	var requested []string
	for driver := range strings.SplitSeq(nodeClaim.Annotations[karpenterv1.DRADriversAnnotationKey], ",") {
		if driver = strings.TrimSpace(driver); driver != "" {
			requested = append(requested, driver)
		}
	}
	slices.Sort(requested)
	return slices.Compact(requested)
}

// drivers are those of the devices of the type, in the order of the NodeType.
func drivers(instanceType *cloudprovider.InstanceType) []string {
	var names []string
	for _, template := range instanceType.DynamicResources.ResourceSliceTemplates {
		names = append(names, template.Driver.Value())
	}
	return names
}

func accelerated(instanceType *cloudprovider.InstanceType) bool {
	return len(v1alpha1.Accelerators(instanceType.Capacity)) > 0 || len(drivers(instanceType)) > 0
}

// awaitedDrivers is the annotation by which core delays the initialization of a node until drivers have published their
// devices, with only those drivers that publish devices on nodes of the type. Core names every driver whose devices were
// allocated, also that of devices that belong to no node, and would wait for ever for those.
func awaitedDrivers(nodeClaim *karpenterv1.NodeClaim, instanceType *cloudprovider.InstanceType) map[string]string {
	if _, annotated := nodeClaim.Annotations[karpenterv1.DRADriversAnnotationKey]; !annotated {
		return nil
	}
	local := drivers(instanceType)
	awaited := slices.DeleteFunc(requestedDrivers(nodeClaim), func(driver string) bool { return !slices.Contains(local, driver) })
	return map[string]string{karpenterv1.DRADriversAnnotationKey: strings.Join(awaited, ",")}
}
