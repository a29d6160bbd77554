// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/utils/resources"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/kube"
)

// virtualSuffix ends the name of the claim for the extended resources of a pod. No stored object can have such a name.
const virtualSuffix = "<extended-resources>"

// ByDriver reports whether a pod gets the resources of device classes from DRA drivers, rather than from device
// plugins. Both may serve the same resource, on different servers.
type ByDriver func(ctx context.Context, pod *corev1.Pod) (bool, error)

// Extended handles extended resources of pods that device classes serve (KEP-5004). kube-scheduler makes a claim for
// them when it binds a pod. Core plans before that, and knows no resource of a new server that a driver serves. So for
// a pod that asks for one, core reads a pod with the claim that kube-scheduler will make.
type Extended struct {
	reader   client.Reader
	byDriver ByDriver
}

// NewExtended returns an Extended that reads device classes and pods by the reader.
func NewExtended(reader client.Reader, byDriver ByDriver) *Extended {
	return &Extended{reader: reader, byDriver: byDriver}
}

// Classes are the device classes by the extended resources that they serve. If several classes serve one resource,
// kube-scheduler's rule decides.
type Classes struct {
	cache *extendedresourcecache.ExtendedResourceCache
}

// ReadClasses reads the device classes.
func ReadClasses(ctx context.Context, reader client.Reader) (Classes, error) {
	classes := &resourcev1.DeviceClassList{}
	if err := reader.List(ctx, classes, client.UnsafeDisableDeepCopy); err != nil {
		return Classes{}, fmt.Errorf("listing DeviceClasses, %w", err)
	}
	cache := extendedresourcecache.NewExtendedResourceCache(klog.Logger{})
	for i := range classes.Items {
		cache.OnAdd(&classes.Items[i], true)
	}
	return Classes{cache}, nil
}

// Serving returns the class that serves a resource, nil if none does.
func (c Classes) Serving(resource corev1.ResourceName) *resourcev1.DeviceClass {
	return c.cache.GetDeviceClass(resource)
}

// asksFor reports whether a container of a pod asks for an extended resource.
func asksFor(pod *corev1.Pod) bool {
	asks := func(container corev1.Container) bool {
		return len(v1alpha1.Extended(container.Resources.Requests)) > 0
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, asks) || slices.ContainsFunc(pod.Spec.Containers, asks)
}

// Pods changes the pods that core lists.
func (e *Extended) Pods() interceptor.Interceptor {
	return interceptor.OnList(func(ctx context.Context, pods *corev1.PodList, _ []client.ListOption) error {
		if !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return asksFor(&pod) }) {
			return nil
		}
		classes, err := ReadClasses(ctx, e.reader)
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if err := e.change(ctx, classes, &pods.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Pod returns a pod as core plans it: with a claim in the place of the resources that a driver serves. It returns the
// same pod if there are none.
func (e *Extended) Pod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	if !asksFor(pod) {
		return pod, nil
	}
	classes, err := ReadClasses(ctx, e.reader)
	if err != nil {
		return nil, err
	}
	changed := *pod
	return &changed, e.change(ctx, classes, &changed)
}

// change replaces resources that a driver serves by a claim. It replaces the pod's objects, which the cache may own.
func (e *Extended) change(ctx context.Context, classes Classes, pod *corev1.Pod) error {
	served, err := e.served(ctx, classes, pod)
	if err != nil || len(served) == 0 {
		return err
	}
	name := pod.Name + virtualSuffix
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil {
		name = made.ResourceClaimName
	}
	pod.Spec.ResourceClaims = append(slices.Clone(pod.Spec.ResourceClaims), corev1.PodResourceClaim{
		Name: "extended-resources", ResourceClaimName: &name,
	})
	for _, containers := range []*[]corev1.Container{&pod.Spec.InitContainers, &pod.Spec.Containers} {
		*containers = slices.Clone(*containers)
		for i := range *containers {
			for _, list := range []*corev1.ResourceList{&(*containers)[i].Resources.Requests, &(*containers)[i].Resources.Limits} {
				*list = maps.Clone(*list)
				maps.DeleteFunc(*list, func(name corev1.ResourceName, _ resource.Quantity) bool { return slices.Contains(served, name) })
			}
		}
	}
	return nil
}

// served returns the resources of a pod that drivers serve, sorted. If kube-scheduler has made a claim, the claim names
// the resources. Otherwise they are the resources that kube-scheduler will put into the claim.
func (e *Extended) served(ctx context.Context, classes Classes, pod *corev1.Pod) ([]corev1.ResourceName, error) {
	var served []corev1.ResourceName
	if made := pod.Status.ExtendedResourceClaimStatus; made != nil {
		for _, mapping := range made.RequestMappings {
			served = append(served, corev1.ResourceName(mapping.ResourceName))
		}
		slices.Sort(served)
		return slices.Compact(served), nil
	}
	for name, quantity := range resources.RequestsForPods(pod) {
		if !quantity.IsZero() && classes.Serving(name) != nil {
			served = append(served, name)
		}
	}
	if len(served) == 0 {
		return nil, nil
	}
	if byDriver, err := e.byDriver(ctx, pod); err != nil || !byDriver {
		return nil, err
	}
	slices.Sort(served)
	return served, nil
}

// Claims supplies the claims for the extended resources of pods.
func (e *Extended) Claims() interceptor.Interceptor {
	return interceptor.Supply(func(ctx context.Context, key client.ObjectKey, claim *resourcev1.ResourceClaim) (bool, error) {
		name, virtual := strings.CutSuffix(key.Name, virtualSuffix)
		if !virtual {
			return false, nil
		}
		pod := &corev1.Pod{}
		if found, err := kube.Find(ctx, e.reader, client.ObjectKey{Namespace: key.Namespace, Name: name}, pod); err != nil || !found {
			return false, err
		}
		classes, err := ReadClasses(ctx, e.reader)
		if err != nil {
			return false, err
		}
		served, err := e.served(ctx, classes, pod)
		if err != nil {
			return false, err
		}
		*claim = resourcev1.ResourceClaim{}
		claim.Namespace, claim.Name, claim.UID = key.Namespace, key.Name, types.UID(virtualSuffix)+pod.UID
		requests := resources.RequestsForPods(pod)
		for i, resource := range served {
			class := classes.Serving(resource)
			if class == nil {
				continue
			}
			quantity := requests[resource]
			claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{
				Name: fmt.Sprintf("resource-%d", i),
				Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: class.Name, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: quantity.Value(),
				},
			})
		}
		return true, nil
	})
}
