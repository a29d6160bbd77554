// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/instancetypes"
)

// machineFor returns the Machine for a NodeClaim. types are the types that the NodeClaim may get.
func machineFor(nodeClaim *karpv1.NodeClaim, class *v1alpha1.MetalNodeClass, types []*cloudprovider.InstanceType,
	advertised func(key string) bool, options Options,
) *v1alpha1.Machine {
	labels := map[string]string{v1alpha1.NodeClaimLabelKey: nodeClaim.Name}
	if pool, found := nodeClaim.Labels[karpv1.NodePoolLabelKey]; found {
		labels[karpv1.NodePoolLabelKey] = pool
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
			Gang:             gangFor(nodeClaim),
			Resources:        resourcesFor(nodeClaim, types),
			RequestedDrivers: driversFor(nodeClaim, types),
			Properties:       maps.Clone(class.Spec.Properties),
			TenantClusterRef: &v1alpha1.NameReference{Name: options.TenantCluster},
			// Core removes the last taint once it has put labels and taints on the node: until then no pod may run.
			Taints:        append(slices.Clone(nodeClaim.Spec.Taints), karpv1.UnregisteredNoExecuteTaint),
			StartupTaints: slices.Clone(nodeClaim.Spec.StartupTaints),
			Labels:        maps.Clone(nodeClaim.Labels),
			KubeletArgs:   maps.Clone(class.Spec.KubeletArgs),
		},
	}
}

// gangFor returns the gang whose servers the manager claims in one decision, or nil if the server is of use by itself.
func gangFor(nodeClaim *karpv1.NodeClaim) *v1alpha1.MachineGang {
	gangs := v1alpha1.GangsOf(nodeClaim)
	if len(gangs) != 1 || gangs[0].MinCount < 2 || len(gangs[0].Name) > v1alpha1.MaxGangName {
		return nil
	}
	return &gangs[0]
}

// resourcesFor returns the requests of the NodeClaim's pods. It leaves out the number of pods: core has compared it
// with the types in the requirements, and hosts do not have that resource.
//
// The NodeClaim of a static NodePool requests no resources, only types, by its requirements. If all of these types have
// accelerators, resourcesFor requests one accelerator. The manager must refuse a Machine that requests none.
func resourcesFor(nodeClaim *karpv1.NodeClaim, types []*cloudprovider.InstanceType) corev1.ResourceList {
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

func oneAccelerator(nodeClaim *karpv1.NodeClaim, types []*cloudprovider.InstanceType) corev1.ResourceList {
	cheapest := cheapestAccelerated(nodeClaim, types)
	if cheapest == nil || len(v1alpha1.Accelerators(cheapest.Capacity)) == 0 {
		return nil
	}
	return corev1.ResourceList{v1alpha1.Accelerators(cheapest.Capacity)[0]: *resource.NewQuantity(1, resource.DecimalSI)}
}

// cheapestAccelerated returns the cheapest type that a NodeClaim may get, or nil unless all have accelerators.
func cheapestAccelerated(nodeClaim *karpv1.NodeClaim, types []*cloudprovider.InstanceType) *cloudprovider.InstanceType {
	wanted := instancetypes.OfServer(scheduling.NewNodeSelectorRequirementsWithMinValues(nodeClaim.Spec.Requirements...))
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

// nodeClaimOf returns the NodeClaim of a claimed Machine. It has no capacity if the NodeType does not exist any more.
func (c *CloudProvider) nodeClaimOf(machine *v1alpha1.Machine) *karpv1.NodeClaim {
	instanceType, _ := c.management.Catalog.InstanceTypeOf(machine)
	nodeClaim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:              machine.Labels[v1alpha1.NodeClaimLabelKey],
			UID:               types.UID(machine.Annotations[v1alpha1.NodeClaimUIDAnnotationKey]),
			CreationTimestamp: machine.CreationTimestamp,
			DeletionTimestamp: machine.DeletionTimestamp,
			Labels:            labelsOf(machine, instanceType),
		},
		Status: karpv1.NodeClaimStatus{ProviderID: machine.Status.ProviderID},
	}
	if instanceType != nil {
		nodeClaim.Status.Capacity = instanceType.Capacity.DeepCopy()
		delete(nodeClaim.Status.Capacity, v1alpha1.ResourceNodes)
		nodeClaim.Status.Allocatable = instanceType.Allocatable().DeepCopy()
		delete(nodeClaim.Status.Allocatable, v1alpha1.ResourceNodes)
	}
	return nodeClaim
}

// labelsOf returns the labels of the node that follow from the server, including the labels that Karpenter needs to
// consolidate the node: type, zone and capacity type.
func labelsOf(machine *v1alpha1.Machine, instanceType *cloudprovider.InstanceType) map[string]string {
	labels := lo.Assign(machine.Status.NodeLabels, v1alpha1.OtherSpellings(machine.Status.NodeLabels))
	if pool, found := machine.Labels[karpv1.NodePoolLabelKey]; found {
		labels[karpv1.NodePoolLabelKey] = pool
	}
	if reference := machine.Status.NodeTypeRef; reference != nil {
		labels[corev1.LabelInstanceTypeStable] = reference.Name
		for _, key := range v1alpha1.Spellings(v1alpha1.NodeTypeLabelKey) {
			labels[key] = reference.Name
		}
	}
	if instanceType == nil {
		return labels
	}
	offering := instanceType.Offerings[0] // the one for nodes that exist
	labels[karpv1.CapacityTypeLabelKey] = offering.CapacityType()
	labels[v1alpha1.ReservationIDLabelKey] = offering.ReservationID()
	return labels
}

// anyServer is a requirement that every server meets. A Machine must have a requirement, and the NodeClaim of a static
// NodePool may have none that hosts and types know.
var anyServer = corev1.NodeSelectorRequirement{
	Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{string(corev1.Linux)},
}

// requirementsFor returns the requirements of a NodeClaim that servers can meet. It leaves out requirements for
// Karpenter and the NodePool, for example the name of the NodePool or labels that the node will get. Labels that are
// selectable in core, and labels of types, stay even if no type has them: without the requirement, the manager could
// claim a server that does not have the label.
func requirementsFor(nodeClaim *karpv1.NodeClaim, advertised func(key string) bool) []corev1.NodeSelectorRequirement {
	var result []corev1.NodeSelectorRequirement
	for _, requirement := range nodeClaim.Spec.Requirements {
		known := advertised(requirement.Key) || karpv1.WellKnownLabels.Has(requirement.Key) || v1alpha1.IsTypeLabel(requirement.Key)
		if known && instancetypes.Selectable(requirement.Key) {
			result = append(result, nodeSelectorRequirement(requirement))
		}
	}
	if len(result) == 0 {
		result = []corev1.NodeSelectorRequirement{anyServer}
	}
	slices.SortFunc(result, func(a, b corev1.NodeSelectorRequirement) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator))
	})
	return result
}

// nodeSelectorRequirement converts a requirement to the operators of Kubernetes: Karpenter has two more.
func nodeSelectorRequirement(requirement karpv1.NodeSelectorRequirementWithMinValues) corev1.NodeSelectorRequirement {
	return instancetypes.WithCoreOperator(corev1.NodeSelectorRequirement{
		Key: v1alpha1.CanonicalKey(requirement.Key), Operator: requirement.Operator, Values: slices.Clone(requirement.Values),
	})
}

// maxDrivers is how many drivers a Machine can name.
const maxDrivers = 32

// driversFor returns the DRA drivers whose devices core has allocated to the claims of the NodeClaim's pods. The
// NodeClaim of a static NodePool has no pods: if all its types are accelerated, and the cheapest has only devices,
// driversFor requests the driver of that type.
func driversFor(nodeClaim *karpv1.NodeClaim, types []*cloudprovider.InstanceType) []string {
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

// requestedDrivers returns the drivers that core has written on the NodeClaim, sorted.
func requestedDrivers(nodeClaim *karpv1.NodeClaim) []string {
	var requested []string
	for driver := range strings.SplitSeq(nodeClaim.Annotations[karpv1.DRADriversAnnotationKey], ",") {
		if driver = strings.TrimSpace(driver); driver != "" {
			requested = append(requested, driver)
		}
	}
	slices.Sort(requested)
	return slices.Compact(requested)
}

// drivers returns the drivers of the type's devices, in the order of the NodeType.
func drivers(instanceType *cloudprovider.InstanceType) []string {
	// A driver has a second template for its counters.
	return lo.Uniq(lo.Map(instanceType.DynamicResources.ResourceSliceTemplates,
		func(template *cloudprovider.ResourceSliceTemplate, _ int) string { return template.Driver.Value() }))
}

func accelerated(instanceType *cloudprovider.InstanceType) bool {
	return len(v1alpha1.Accelerators(instanceType.Capacity)) > 0 || len(drivers(instanceType)) > 0
}

// awaitedDrivers returns the annotation that makes core delay the initialization of a node until drivers have published
// their devices. It names only drivers that publish devices on nodes of the type. Core names every driver with an
// allocated device, even if the device belongs to no node, and would wait for ever for these drivers.
func awaitedDrivers(nodeClaim *karpv1.NodeClaim, instanceType *cloudprovider.InstanceType) map[string]string {
	if _, annotated := nodeClaim.Annotations[karpv1.DRADriversAnnotationKey]; !annotated {
		return nil
	}
	local := drivers(instanceType)
	awaited := slices.DeleteFunc(requestedDrivers(nodeClaim), func(driver string) bool { return !slices.Contains(local, driver) })
	return map[string]string{karpv1.DRADriversAnnotationKey: strings.Join(awaited, ",")}
}
