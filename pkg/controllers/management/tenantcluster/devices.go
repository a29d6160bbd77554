// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantcluster

import (
	"context"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

// reasonTooManyDeviceClasses: the namespace has more DeviceClasses than a status lists. An event on the TenantCluster.
const reasonTooManyDeviceClasses = "TooManyDeviceClasses"

var deviceClassKind = resourcev1.SchemeGroupVersion.WithKind("DeviceClass")

// allowDevices sets the devices that claims in the namespace of a TenantCluster may request, and returns how many
// DeviceClasses are selected. A policy reads each TenantCluster of the namespace by itself, so all are equal.
func (c *Controller) allowDevices(ctx context.Context, tenant *v1alpha1.TenantCluster) (selected int, err error) {
	tenants, classes := &v1alpha1.TenantClusterList{}, &resourcev1.DeviceClassList{}
	if err := c.client.List(ctx, tenants, client.InNamespace(tenant.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the TenantClusters of namespace %s, %w", tenant.Namespace, err)
	}
	tenant.Status.AllowedDevices = nil
	if !slices.ContainsFunc(tenants.Items, func(tenant v1alpha1.TenantCluster) bool { return tenant.Spec.Sync.Enabled() }) {
		return 0, nil
	}
	// Kubernetes before 1.34 does not serve DeviceClasses. The provider reports that in DRASynced.
	if err := c.client.List(ctx, classes, client.UnsafeDisableDeepCopy); err != nil && !meta.IsNoMatchError(err) {
		return 0, fmt.Errorf("listing the DeviceClasses for TenantCluster %s, %w", client.ObjectKeyFromObject(tenant), err)
	}
	tenant.Status.AllowedDevices, selected = allowedDevices(tenants.Items, classes.Items)
	return selected, nil
}

// allowedDevices returns the devices that TenantClusters allow together, and how many DeviceClasses they select.
func allowedDevices(tenants []v1alpha1.TenantCluster, classes []resourcev1.DeviceClass) (allowed *v1alpha1.AllowedDevices, selected int) {
	allowed = &v1alpha1.AllowedDevices{}
	for i := range tenants {
		sync := &tenants[i].Spec.Sync
		allowed.OpaqueConfigDrivers = append(allowed.OpaqueConfigDrivers, sync.ToHost.OpaqueConfigDrivers...)
		selector, err := sync.FromHost.DeviceClasses.LabelSelector()
		if err != nil || !sync.FromHost.DeviceClasses.Enabled {
			continue // it selects nothing; the provider reports that in DRASynced
		}
		for j := range classes {
			if class := &classes[j]; class.DeletionTimestamp.IsZero() && selector.Matches(labels.Set(class.Labels)) {
				allowed.DeviceClasses = append(allowed.DeviceClasses, class.Name)
			}
		}
	}
	allowed.OpaqueConfigDrivers, _ = bounded(allowed.OpaqueConfigDrivers)
	allowed.DeviceClasses, selected = bounded(allowed.DeviceClasses)
	return allowed, selected
}

// bounded sorts words and removes duplicates. It returns as many as a status lists, and how many there are.
func bounded(words []string) ([]string, int) {
	slices.Sort(words)
	words = slices.Compact(words)
	return words[:min(len(words), v1alpha1.MaxAllowedDevices)], len(words)
}
