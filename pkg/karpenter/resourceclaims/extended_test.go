// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package resourceclaims

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/karpenter/interceptor"
)

const gpu corev1.ResourceName = "example.com/gpu"

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// class serves gpu with the devices of a driver that its selectors select.
func class(name string, selectors ...string) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	class.Spec.ExtendedResourceName = ptr.To(string(gpu))
	for _, selector := range selectors {
		class.Spec.Selectors = append(class.Spec.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: selector}})
	}
	return class
}

func slice(name, node, driver string, devices ...string) *resourcev1.ResourceSlice {
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}}
	slice.Spec.Driver, slice.Spec.NodeName = driver, &node
	for _, device := range devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: device,
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": {StringValue: ptr.To(device[:3])}}})
	}
	return slice
}

func byDriver(is bool) ByDriver {
	return func(context.Context, *corev1.Pod) (bool, error) { return is, nil }
}

// TestPods: what core lists, and that the pods of the cache stay as they are.
func TestPods(t *testing.T) {
	asking := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: quantities(string(gpu), "2")}}},
		Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Requests: quantities("cpu", "1", string(gpu), "1"), Limits: quantities(string(gpu), "1")}}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "own", ResourceClaimName: ptr.To("own")}},
	}
	made := &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "pod-extended-resources-x",
		RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: string(gpu)}}}
	for name, tc := range map[string]struct {
		reason string
		driver bool
		made   *corev1.PodExtendedResourceClaimStatus
		class  string
		want   string // the claim that is added, empty for none
	}{
		"Virtual":   {reason: "kube-scheduler will make one", driver: true, class: "gpus", want: "pod<extended-resources>"},
		"Made":      {reason: "kube-scheduler has made one", driver: true, class: "gpus", made: made, want: "pod-extended-resources-x"},
		"MadeSince": {reason: "the class has gone, and the claim is there", made: made, want: "pod-extended-resources-x"},
		"Plugin":    {reason: "its types have no devices", class: "gpus"},
		"NoClass":   {reason: "no class serves it", driver: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: "u"}, Spec: *asking.DeepCopy()}
			pod.Status.ExtendedResourceClaimStatus = tc.made
			objects := []client.Object{pod}
			if tc.class != "" {
				objects = append(objects, class(tc.class))
			}
			reader := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
			extended := NewExtended(reader, byDriver(tc.driver))
			stored := pod.DeepCopy()
			seen, err := extended.Pod(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(stored, pod); diff != "" {
				t.Errorf("the pod of the cache has changed (-want +got):\n%s", diff)
			}
			if tc.want == "" {
				if diff := cmp.Diff(stored.Spec, seen.Spec); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				return
			}
			claims := seen.Spec.ResourceClaims
			if len(claims) != 2 || *claims[1].ResourceClaimName != tc.want {
				t.Fatalf("%s: claims %v, want own and %s", tc.reason, claims, tc.want)
			}
			for _, list := range []corev1.ResourceList{seen.Spec.InitContainers[0].Resources.Requests,
				seen.Spec.Containers[0].Resources.Requests, seen.Spec.Containers[0].Resources.Limits} {
				if _, found := list[gpu]; found {
					t.Errorf("%s: it asks for the resource and for a claim: %v", tc.reason, list)
				}
			}
			claim := &resourcev1.ResourceClaim{}
			err = interceptor.NewClient(reader, extended.Claims()).Get(t.Context(), client.ObjectKey{Namespace: "default", Name: tc.want}, claim)
			if tc.made != nil {
				if !apierrors.IsNotFound(err) {
					t.Errorf("a claim with the name of a real one was supplied: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := []resourcev1.DeviceRequest{{Name: "resource-0", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpus",
				AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 2}}}
			if diff := cmp.Diff(want, claim.Spec.Devices.Requests); diff != "" {
				t.Errorf("requests of the claim (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPublished: a device counts if it is on the node and its class serves the resource.
func TestPublished(t *testing.T) {
	slices := []client.Object{
		slice("a", "node-1", "gpu.example.com", "gpu-0", "gpu-1", "mig-0"), slice("b", "node-1", "gpu.example.com", "gpu-2"),
		slice("c", "node-1", "nic.example.com", "gpu-3"), slice("d", "node-2", "gpu.example.com", "gpu-0"),
	}
	driver, whole := `device.driver == "gpu.example.com"`, `device.attributes["gpu.example.com"].type == "gpu"`
	for name, tc := range map[string]struct {
		reason string
		class  *resourcev1.DeviceClass
		want   string
	}{
		"All":      {"no selector selects all devices of the node", class("c"), "5"},
		"Selected": {"each selector must hold", class("c", driver, whole), "3"},
		"Fails":    {"an attribute that a device lacks selects it not", class("c", `device.attributes["other.example.com"].type == "gpu"`), "0"},
		"Wrong":    {"a selector that does not compile selects nothing", class("c", `device.`), "0"},
	} {
		reader := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(append(slices, tc.class)...).Build()
		published, err := Published(t.Context(), reader, "node-1", []corev1.ResourceName{gpu, "example.com/fpga"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(quantities(string(gpu), tc.want), published); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

// TestRegistered: core waits for a device plugin until the driver has published devices of the class.
func TestRegistered(t *testing.T) {
	initialized := func(nodeClaim *karpv1.NodeClaim) {
		nodeClaim.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
	}
	for name, tc := range map[string]struct {
		reason  string
		change  func(*karpv1.NodeClaim)
		objects []client.Object
		waits   bool
	}{
		"Published":    {reason: "the driver has it", objects: []client.Object{class("c"), slice("a", "node-1", "gpu.example.com", "gpu-0")}},
		"NotPublished": {reason: "neither has it yet", objects: []client.Object{class("c")}, waits: true},
		"OtherNode": {reason: "the driver has it elsewhere", waits: true,
			objects: []client.Object{class("c"), slice("a", "node-2", "gpu.example.com", "gpu-0")}},
		"NoClass": {reason: "a device plugin has it", objects: []client.Object{slice("a", "node-1", "gpu.example.com", "gpu-0")}, waits: true},
		"Initialized": {reason: "core does not wait any more", change: initialized, waits: true,
			objects: []client.Object{class("c"), slice("a", "node-1", "gpu.example.com", "gpu-0")}},
		"NoNode": {reason: "nothing is known of it", change: func(nodeClaim *karpv1.NodeClaim) { nodeClaim.Status.NodeName = "" }, waits: true,
			objects: []client.Object{class("c"), slice("a", "node-1", "gpu.example.com", "gpu-0")}},
	} {
		t.Run(name, func(t *testing.T) {
			nodeClaim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
			nodeClaim.Spec.Resources.Requests = quantities("cpu", "1", string(gpu), "1")
			nodeClaim.Status.NodeName = "node-1"
			if tc.change != nil {
				tc.change(nodeClaim)
			}
			reader := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(append(tc.objects, nodeClaim)...).Build()
			got := &karpv1.NodeClaim{}
			if err := interceptor.NewClient(reader, Registered(reader)).Get(t.Context(), client.ObjectKeyFromObject(nodeClaim), got); err != nil {
				t.Fatal(err)
			}
			if _, waits := got.Spec.Resources.Requests[gpu]; waits != tc.waits {
				t.Errorf("%s: core waits for the resource: %v", tc.reason, waits)
			}
			if _, found := got.Spec.Resources.Requests[corev1.ResourceCPU]; !found {
				t.Error("cpu is not of the class")
			}
		})
	}
}
