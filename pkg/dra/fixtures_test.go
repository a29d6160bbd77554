// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/dra/names"
)

// protection is Kubernetes' own finalizer on allocated claims.
const protection = "resource.kubernetes.io/delete-protection"

// createClass creates a class on the host that the tenant may ask for.
func (w *fixture) createClass(name string, change func(*resourcev1.DeviceClass)) *resourcev1.DeviceClass {
	w.Helper()
	class := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: w.labels()},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}}},
	}
	if change != nil {
		change(class)
	}
	w.must(w.host.Create(w.Context(), class))
	return class
}

func exactly(name, class string) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}
}

func firstOf(name string, classes ...string) resourcev1.DeviceRequest {
	request := resourcev1.DeviceRequest{Name: name}
	for i, class := range classes {
		request.FirstAvailable = append(request.FirstAvailable, resourcev1.DeviceSubRequest{Name: fmt.Sprintf("r%d", i), DeviceClassName: class})
	}
	return request
}

// createClaim creates a claim in the tenant, of the tenant's class unless there are requests.
func (w *fixture) createClaim(name string, requests ...resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	w.Helper()
	if len(requests) == 0 {
		requests = []resourcev1.DeviceRequest{exactly("gpu", w.class)}
	}
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{"app": "train"}},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}},
	}
	w.must(w.tenant.Create(w.Context(), claim))
	return claim
}

func (w *fixture) createTemplate(name string) *resourcev1.ResourceClaimTemplate {
	w.Helper()
	template := &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: resourcev1.ResourceClaimTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "train", names.MarkerLabel: "red"}},
			Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{exactly("gpu", w.class)}}},
		},
	}
	w.must(w.tenant.Create(w.Context(), template))
	return template
}

func pod(namespace, name string, claims ...corev1.PodResourceClaim) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			ResourceClaims: claims, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "c", Image: "c"}},
		},
	}
}

// createPod creates a pod in the tenant and the host's copy of it, as vCluster's syncer does.
func (w *fixture) createPod(name string, claims ...corev1.PodResourceClaim) (tenantPod, hostPod *corev1.Pod) {
	w.Helper()
	tenantPod = pod(w.namespace, name, claims...)
	w.must(w.tenant.Create(w.Context(), tenantPod))
	return tenantPod, w.createHostPod(tenantPod)
}

func (w *fixture) createHostPod(tenantPod *corev1.Pod) *corev1.Pod {
	w.Helper()
	hostName, err := names.HostName(tenantPod.Name, tenantPod.Namespace, w.cluster.Name)
	w.must(err)
	key := client.ObjectKey{Namespace: w.cluster.Namespace, Name: hostName}
	hostPod := pod(key.Namespace, key.Name)
	metadata := names.HostMetadata(tenantPod, names.PodKind, key, w.cluster.Name, names.Metadata{})
	hostPod.Labels, hostPod.Annotations = metadata.Labels, metadata.Annotations
	w.must(w.host.Create(w.Context(), hostPod))
	return hostPod
}

// change changes an object, with retries on conflicts.
func change[T client.Object](w *fixture, c client.Client, object T, mutate func(T)) {
	w.Helper()
	w.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(w.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		mutate(object)
		return c.Update(w.Context(), object)
	}))
}

func changeStatus(w *fixture, claim *resourcev1.ResourceClaim, mutate func(*resourcev1.ResourceClaimStatus)) {
	w.Helper()
	w.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.host.Get(w.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		mutate(&claim.Status)
		return w.host.Status().Update(w.Context(), claim)
	}))
}

// allocate does to a claim of the host what its scheduler does for a pod.
func (w *fixture) allocate(claim *resourcev1.ResourceClaim, device string, pods ...*corev1.Pod) {
	w.Helper()
	if !slices.Contains(claim.Finalizers, protection) {
		change(w, w.host, claim, func(claim *resourcev1.ResourceClaim) { claim.Finalizers = append(claim.Finalizers, protection) })
	}
	changeStatus(w, claim, func(status *resourcev1.ResourceClaimStatus) {
		status.Allocation = &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: "gpu.example.com", Pool: "node-7", Device: device}}},
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-7"}}}}}},
		}
		status.ReservedFor = nil
		for _, pod := range pods {
			status.ReservedFor = append(status.ReservedFor,
				resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
		}
	})
}

// deallocate does what the host's resourceclaim controller does once no pod uses the claim.
func (w *fixture) deallocate(claim *resourcev1.ResourceClaim) {
	w.Helper()
	changeStatus(w, claim, func(status *resourcev1.ResourceClaimStatus) { *status = resourcev1.ResourceClaimStatus{} })
	change(w, w.host, claim, func(claim *resourcev1.ResourceClaim) {
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(finalizer string) bool { return finalizer == protection })
	})
}

// awaitStatus waits until a claim of the tenant has a device and is reserved for so many pods.
func (w *fixture) awaitStatus(name string, device string, pods ...*corev1.Pod) *resourcev1.ResourceClaim {
	w.Helper()
	var claim *resourcev1.ResourceClaim
	w.eventually("the status of claim "+name+" is back", func(context.Context) error {
		claim = w.tenantClaim(name)
		if claim.Status.Allocation == nil {
			return fmt.Errorf("it is not allocated")
		}
		if got := claim.Status.Allocation.Devices.Results[0].Device; device != "" && got != device {
			return fmt.Errorf("the device is %s", got)
		}
		if len(claim.Status.ReservedFor) != len(pods) {
			return fmt.Errorf("it is reserved for %v", claim.Status.ReservedFor)
		}
		for i, pod := range pods {
			if got := claim.Status.ReservedFor[i]; got.Name != pod.Name || got.UID != pod.UID || got.Resource != "pods" {
				return fmt.Errorf("it is reserved for %v, want %s %s", got, pod.Name, pod.UID)
			}
		}
		return nil
	})
	return claim
}

// allowAdmins makes a namespace one whose claims may have admin access.
func (w *fixture) allowAdmins(c client.Client, name string) {
	w.Helper()
	namespace := &corev1.Namespace{}
	w.must(c.Get(w.Context(), client.ObjectKey{Name: name}, namespace))
	stored := namespace.DeepCopy()
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels["resource.kubernetes.io/admin-access"] = "true"
	w.must(c.Patch(w.Context(), namespace, client.MergeFrom(stored)))
}

func (w *fixture) classObject() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: w.class}}
}
