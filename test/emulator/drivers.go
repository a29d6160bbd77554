// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package emulator

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/fleet/devices"
)

// publish publishes devices as DRA drivers do, with the rights of the kubelet: each driver has a pool named after the
// node, with as many slices as its devices need. It is idempotent.
func publish(ctx context.Context, clientset kubernetes.Interface, server Server, nodeName string) error {
	if len(server.Devices) == 0 {
		return nil
	}
	node, err := clientset.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Node %s, %w", nodeName, err)
	}
	for _, driver := range devices.Expand(server.Devices) {
		for _, slice := range slicesOf(node, driver) {
			if err := publishSlice(ctx, clientset, slice); err != nil {
				return fmt.Errorf("publishing the devices of %s on Node %s, %w", driver.Name, nodeName, err)
			}
		}
	}
	return nil
}

func publishSlice(ctx context.Context, clientset kubernetes.Interface, wanted *resourcev1.ResourceSlice) error {
	published := clientset.ResourceV1().ResourceSlices()
	_, err := published.Create(ctx, wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := published.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(existing.Spec, wanted.Spec) &&
		equality.Semantic.DeepEqual(existing.OwnerReferences, wanted.OwnerReferences) {
		return nil
	}
	// It belongs to an earlier Node of that name, and will be garbage-collected.
	return fmt.Errorf("resourceslice %s belongs to another Node or has other devices", wanted.Name)
}

// slicesOf returns the slices of one driver. The Node owns them: they are deleted with it, and Karpenter attributes the
// devices by the owner.
func slicesOf(node *corev1.Node, driver devices.Driver) (result []*resourcev1.ResourceSlice) {
	add := func(spec resourcev1.ResourceSliceSpec) {
		spec.Driver, spec.NodeName = driver.Name, ptr.To(node.Name)
		result = append(result, &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%s-%d", node.Name, driver.Name, len(result)),
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: ptr.To(true),
				}},
			},
			Spec: spec,
		})
	}
	room := resourcev1.ResourceSliceMaxDevices
	if len(driver.CounterSets) > 0 {
		room = resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	for chunk := range slices.Chunk(driver.Devices, room) {
		var published []resourcev1.Device
		for _, device := range chunk {
			published = append(published, deviceOf(device))
		}
		add(resourcev1.ResourceSliceSpec{Devices: published})
	}
	for chunk := range slices.Chunk(driver.CounterSets, resourcev1.ResourceSliceMaxCounterSets) {
		add(resourcev1.ResourceSliceSpec{SharedCounters: chunk})
	}
	for _, slice := range result {
		slice.Spec.Pool = resourcev1.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: int64(len(result))}
	}
	return result
}

// deviceOf returns a device as its driver publishes it, with the name of its PCIe root.
func deviceOf(device devices.Device) resourcev1.Device {
	published := resourcev1.Device{Name: device.Name, Attributes: maps.Clone(device.Attributes), Capacity: device.Capacity,
		ConsumesCounters: device.ConsumesCounters}
	if device.Shared {
		published.AllowMultipleAllocations = ptr.To(true)
	}
	if device.Root != "" {
		published.Attributes[devices.PCIeRoot] = resourcev1.DeviceAttribute{StringValue: ptr.To(device.Root)}
	}
	return published
}
