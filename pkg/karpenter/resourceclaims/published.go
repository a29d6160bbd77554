// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube/conditions"
)

// Published returns, for each resource of a device class, how many devices the drivers of a node have published.
func Published(ctx context.Context, reader client.Reader, node string, names []corev1.ResourceName) (corev1.ResourceList, error) {
	classes, err := ReadClasses(ctx, reader)
	if err != nil {
		return nil, err
	}
	published, slices := corev1.ResourceList{}, &resourcev1.ResourceSliceList{}
	for _, name := range names {
		class := classes.Serving(name)
		if class == nil {
			continue
		}
		if len(slices.Items) == 0 {
			if err := reader.List(ctx, slices, client.UnsafeDisableDeepCopy); err != nil {
				return nil, fmt.Errorf("listing ResourceSlices, %w", err)
			}
		}
		count, matches := int64(0), matcher(class)
		for i := range slices.Items {
			if slice := &slices.Items[i]; ptr.Deref(slice.Spec.NodeName, "") == node {
				for j := range slice.Spec.Devices {
					if matches(ctx, slice.Spec.Driver, &slice.Spec.Devices[j]) {
						count++
					}
				}
			}
		}
		published[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return published, nil
}

// matcher tests whether a device belongs to a class. As in kube-scheduler, a failing selector selects nothing.
func matcher(class *resourcev1.DeviceClass) func(ctx context.Context, driver string, device *resourcev1.Device) bool {
	var selectors []cel.CompilationResult
	for _, selector := range class.Spec.Selectors {
		if selector.CEL != nil {
			selectors = append(selectors, cel.GetCompiler(cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}).
				CompileCELExpression(selector.CEL.Expression, cel.Options{}))
		}
	}
	return func(ctx context.Context, driver string, device *resourcev1.Device) bool {
		for i := range selectors {
			if selectors[i].Error != nil {
				return false
			}
			matches, _, err := selectors[i].DeviceMatches(ctx, cel.Device{Driver: driver, Attributes: device.Attributes,
				Capacity: device.Capacity, AllowMultipleAllocations: device.AllowMultipleAllocations})
			if err != nil || !matches {
				return false
			}
		}
		return true
	}
}

// Registered changes the reads of core's lifecycle controller, which waits until a node has registered each resource
// that its NodeClaim requests. A device plugin registers a resource, but a driver publishes devices instead. So
// Registered removes a resource from the NodeClaim once its node has devices of the class that serves the resource.
func Registered(reader client.Reader) interceptor.Interceptor {
	return interceptor.OnGet(func(ctx context.Context, nodeClaim *karpv1.NodeClaim, _ []client.GetOption) error {
		// StatusConditions would add missing conditions.
		initialized := conditions.Find(nodeClaim.Status.Conditions, karpv1.ConditionTypeInitialized)
		if nodeClaim.Status.NodeName == "" || initialized.Status == metav1.ConditionTrue {
			return nil
		}
		names := v1alpha1.Extended(nodeClaim.Spec.Resources.Requests)
		if len(names) == 0 {
			return nil
		}
		published, err := Published(ctx, reader, nodeClaim.Status.NodeName, names)
		if err != nil {
			return err
		}
		// The object is the caller's own copy, and core writes nothing of its spec.
		for name, count := range published {
			if !count.IsZero() {
				delete(nodeClaim.Spec.Resources.Requests, name)
			}
		}
		return nil
	})
}
