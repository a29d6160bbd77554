// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/operator/options"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
)

func withDevices(nodeType *v1alpha1.NodeType, devices ...v1alpha1.NodeTypeDevice) *v1alpha1.NodeType {
	nodeType.Spec.Devices = devices
	return nodeType
}

func gpus(count int32, memory string, roots ...string) v1alpha1.NodeTypeDevice {
	return v1alpha1.NodeTypeDevice{
		Driver: "gpu.example.com", Count: count, PCIeRoots: roots,
		Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"driverVersion": {Version: ptr.To("570.1.0")}},
		Capacity:   map[string]resource.Quantity{"memory": resource.MustParse(memory)},
	}
}

func nics(count int32, roots ...string) v1alpha1.NodeTypeDevice {
	return v1alpha1.NodeTypeDevice{Driver: "nic.example.com", Count: count, PCIeRoots: roots}
}

// claim makes a claim for one device for each selector, and a class that has them all.
func claim(name string, constraint *resourcev1.FullyQualifiedName, selectors ...string) []client.Object {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	for n, selector := range selectors {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{
			Name: string(rune('a' + n)),
			Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: "any", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}},
			},
		})
	}
	if constraint != nil {
		claim.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: constraint}}
	}
	return []client.Object{claim, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "any"}}}
}

// requesting has each request of a claim ask for memory.
func requesting(objects []client.Object, memory string) []client.Object {
	for i := range objects[0].(*resourcev1.ResourceClaim).Spec.Devices.Requests {
		objects[0].(*resourcev1.ResourceClaim).Spec.Devices.Requests[i].Exactly.Capacity = &resourcev1.CapacityRequirements{
			Requests: map[resourcev1.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}}
	}
	return objects
}

// administrative has each request of a claim access devices that others use.
func administrative(objects []client.Object) []client.Object {
	for i := range objects[0].(*resourcev1.ResourceClaim).Spec.Devices.Requests {
		objects[0].(*resourcev1.ResourceClaim).Spec.Devices.Requests[i].Exactly.AdminAccess = ptr.To(true)
	}
	return objects
}

func claiming(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: &name}}
	}
}

// TestDevicesAreAllocatedBeforeTheNodeExists has core's own allocator work with what we make of NodeTypes.
func TestDevicesAreAllocatedBeforeTheNodeExists(t *testing.T) {
	const (
		big     = `device.driver == "gpu.example.com" && device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0`
		anyGPU  = `device.driver == "gpu.example.com"`
		anyNIC  = `device.driver == "nic.example.com"`
		version = `device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("560.0.0"))`
	)
	root := ptr.To(resourcev1.FullyQualifiedName("resource.kubernetes.io/pcieRoot"))
	small := func() *v1alpha1.NodeType {
		return withDevices(nodeType("small", 2, "cpu", "64", "memory", "256Gi"), gpus(4, "40Gi"))
	}
	large := func(devices ...v1alpha1.NodeTypeDevice) *v1alpha1.NodeType {
		return withDevices(nodeType("large", 2, "cpu", "96", "memory", "768Gi"), devices...)
	}
	// firstOf makes a claim for what the first selector asks for, or else the second.
	firstOf := func(selectors ...string) []client.Object {
		objects := claim("c", nil, selectors...)
		devices := &objects[0].(*resourcev1.ResourceClaim).Spec.Devices
		alternatives := resourcev1.DeviceRequest{Name: "either"}
		for _, request := range devices.Requests {
			alternatives.FirstAvailable = append(alternatives.FirstAvailable, resourcev1.DeviceSubRequest{Name: request.Name,
				DeviceClassName: request.Exactly.DeviceClassName, AllocationMode: request.Exactly.AllocationMode, Count: request.Exactly.Count,
				Selectors: request.Exactly.Selectors})
		}
		devices.Requests = []resourcev1.DeviceRequest{alternatives}
		return objects
	}
	for name, tc := range map[string]struct {
		reason  string
		types   []*v1alpha1.NodeType
		objects []client.Object
		want    []string
		drivers string
	}{
		"memory": {
			reason:  "of two types only the dearer one has such devices",
			types:   []*v1alpha1.NodeType{small(), large(gpus(8, "80Gi")), plain(2)},
			objects: append(claim("c", nil, big), pod(0, requests("cpu", "1"), claiming("c"))),
			want:    []string{"large"}, drivers: "gpu.example.com",
		},
		"version": {
			reason:  "versions are compared as such",
			types:   []*v1alpha1.NodeType{small(), plain(2)},
			objects: append(claim("c", nil, version), pod(0, requests("cpu", "1"), claiming("c"))),
			want:    []string{"small"}, drivers: "gpu.example.com",
		},
		"the first of two": {
			reason:  "a type has what is asked for first",
			types:   []*v1alpha1.NodeType{large(gpus(8, "80Gi"))},
			objects: append(firstOf(big, anyGPU), pod(0, requests("cpu", "1"), claiming("c"))),
			want:    []string{"large"}, drivers: "gpu.example.com",
		},
		"the second of two": {
			reason:  "no type has what is asked for first",
			types:   []*v1alpha1.NodeType{small(), plain(2)},
			objects: append(firstOf(big, anyGPU), pod(0, requests("cpu", "1"), claiming("c"))),
			want:    []string{"small"}, drivers: "gpu.example.com",
		},
		"none of two": {
			reason:  "no type has either",
			types:   []*v1alpha1.NodeType{small(), plain(2)},
			objects: append(firstOf(big, anyNIC), pod(0, requests("cpu", "1"), claiming("c"))),
		},
		"as many as there are": {
			reason: "a fifth device needs a second server",
			types:  []*v1alpha1.NodeType{small()},
			objects: append(append(claim("c", nil, anyGPU, anyGPU, anyGPU, anyGPU), pod(0, requests("cpu", "1"), claiming("c"))),
				append(claim("d", nil, anyGPU)[:1], pod(1, requests("cpu", "1"), claiming("d")))...),
			want: []string{"small", "small"}, drivers: "gpu.example.com",
		},
		"at one root": {
			reason:  "devices of two drivers that share a root, whatever it is called",
			types:   []*v1alpha1.NodeType{large(gpus(4, "80Gi", "x", "y"), nics(2, "x", "y"))},
			objects: append(claim("c", root, anyGPU, anyNIC), pod(0, requests("cpu", "1"), claiming("c"))),
			want:    []string{"large"}, drivers: "gpu.example.com,nic.example.com",
		},
		"at no common root": {
			reason:  "the types says that GPUs and network cards are apart",
			types:   []*v1alpha1.NodeType{large(gpus(4, "80Gi", "x"), nics(2, "y"))},
			objects: append(claim("c", root, anyGPU, anyNIC), pod(0, requests("cpu", "1"), claiming("c"))),
		},
		"three at one root of two": {
			reason:  "of four devices at two roots only two share one",
			types:   []*v1alpha1.NodeType{large(gpus(4, "80Gi", "x", "y"))},
			objects: append(claim("c", root, anyGPU, anyGPU, anyGPU), pod(0, requests("cpu", "1"), claiming("c"))),
		},
		"no claim, only servers with devices": {
			reason:  "devices are accelerators: a pod that claims none must not get them",
			types:   []*v1alpha1.NodeType{small()},
			objects: []client.Object{pod(0, requests("cpu", "1"))},
		},
		"capacity of a device that is not shared": {
			reason: "kube-scheduler gives out no device with less", types: []*v1alpha1.NodeType{small(), large(gpus(8, "80Gi"))},
			objects: append(requesting(claim("c", nil, anyGPU), "80Gi"), pod(0, requests("cpu", "1"), claiming("c"))),
			want:    []string{"large"}, drivers: "gpu.example.com",
		},
		"more capacity than any device has": {
			reason: "no server would help", types: []*v1alpha1.NodeType{small(), large(gpus(8, "80Gi"))},
			objects: append(requesting(claim("c", nil, anyGPU), "81Gi"), pod(0, requests("cpu", "1"), claiming("c"))),
		},
		"access of an administrator": {
			reason: "it takes no device, so that four others have room", types: []*v1alpha1.NodeType{small()},
			objects: append(append(administrative(claim("c", nil, anyGPU)), pod(0, requests("cpu", "1"), claiming("c"))),
				append(claim("d", nil, anyGPU, anyGPU, anyGPU, anyGPU)[:1], pod(1, requests("cpu", "1"), claiming("d")))...),
			want: []string{"small"}, drivers: "gpu.example.com",
		},
		"devices that are not valid": {
			reason: "devices that no driver can publish are not in the template",
			types: []*v1alpha1.NodeType{large(v1alpha1.NodeTypeDevice{Driver: "gpu.example.com", Count: 1,
				Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"driverVersion": {Version: ptr.To("new")}}})},
			objects: append(claim("c", nil, anyGPU), pod(0, requests("cpu", "1"), claiming("c"))),
		},
	} {
		t.Run(name, func(t *testing.T) {
			results := scheduleWith(t, func(o *options.Options) { o.IgnoreDRARequests = false }, tc.types, tc.objects...)
			var got []string
			for _, planned := range results.NewNodeClaims {
				got = append(got, planned.InstanceTypeOptions.OrderByPrice(planned.Requirements)[0].Name)
				if drivers := planned.ToNodeClaim().Annotations[karpv1.DRADriversAnnotationKey]; drivers != tc.drivers {
					t.Errorf("the NodeClaim waits for %q, want %q", drivers, tc.drivers)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\nerrors: %v", tc.reason, diff, results.PodErrors)
			}
		})
	}
}

// serving is a class of the devices of gpu.example.com that serves a resource.
func serving(resource string) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}}
	class.Spec.ExtendedResourceName = &resource
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}}
	return class
}

// TestExtendedResourcesOfDrivers has core's own scheduler plan for pods that ask for GPUs by a resource that a class serves.
func TestExtendedResourcesOfDrivers(t *testing.T) {
	const resource = "example.com/gpu"
	devices := func(pairs ...string) *v1alpha1.NodeType {
		return withDevices(nodeType("devices", 2, append(pairs, "cpu", "64", "memory", "256Gi")...), gpus(4, "40Gi"))
	}
	plugin := nodeType("plugin", 2, "cpu", "64", "memory", "256Gi", resource, "4")
	asking := func(number int, count string, change ...func(*corev1.Pod)) *corev1.Pod {
		return pod(number, requests("cpu", "1", resource, count), change...)
	}
	initContainer := func(count string, restart *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: requests(resource, count), RestartPolicy: restart}}
		}
	}
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	for name, tc := range map[string]struct {
		reason  string
		types   []*v1alpha1.NodeType
		objects []client.Object
		want    []string
		drivers string
	}{
		"devices alone": {reason: "kube-scheduler makes a claim", types: []*v1alpha1.NodeType{devices(), plain(2)},
			objects: []client.Object{serving(resource), asking(0, "1")}, want: []string{"devices"}, drivers: "gpu.example.com"},
		"the same GPUs as a resource": {reason: "they are devices in this cluster", types: []*v1alpha1.NodeType{devices(resource, "4")},
			objects: []client.Object{serving(resource), asking(0, "1")}, want: []string{"devices"}, drivers: "gpu.example.com"},
		"no class": {reason: "a device plugin has the same GPUs", types: []*v1alpha1.NodeType{devices(resource, "4")},
			objects: []client.Object{asking(0, "1")}, want: []string{"devices"}},
		"no devices": {reason: "the class is for servers of others", types: []*v1alpha1.NodeType{plugin},
			objects: []client.Object{serving(resource), asking(0, "1")}, want: []string{"plugin"}},
		"by the name of the class": {reason: "each class has it", types: []*v1alpha1.NodeType{devices()},
			objects: []client.Object{serving(resource), pod(0, requests(resourcev1.ResourceDeviceClassPrefix+"gpus", "2"))},
			want:    []string{"devices"}, drivers: "gpu.example.com"},
		"four on one server": {reason: "all of its GPUs", types: []*v1alpha1.NodeType{devices()},
			objects: []client.Object{serving(resource), asking(0, "2"), asking(1, "1"), asking(2, "1")}, want: []string{"devices"},
			drivers: "gpu.example.com"},
		"five": {reason: "one more than a server has", types: []*v1alpha1.NodeType{devices()},
			objects: []client.Object{serving(resource), asking(0, "4"), asking(1, "1")}, want: []string{"devices", "devices"},
			drivers: "gpu.example.com"},
		"too many": {reason: "no server has so many", types: []*v1alpha1.NodeType{devices()},
			objects: []client.Object{serving(resource), asking(0, "5")}},
		"beside a claim": {reason: "they share the devices of a server", types: []*v1alpha1.NodeType{devices()},
			objects: append(claim("c", nil, `device.driver == "gpu.example.com"`), serving(resource), pod(0, requests("cpu", "1"), claiming("c")),
				asking(1, "3"), asking(2, "1")), want: []string{"devices", "devices"}, drivers: "gpu.example.com"},
		"an init container": {reason: "it ends before the others begin", types: []*v1alpha1.NodeType{devices()},
			objects: []client.Object{serving(resource), asking(0, "3", initContainer("4", nil))}, want: []string{"devices"},
			drivers: "gpu.example.com"},
		"a sidecar": {reason: "it stays", types: []*v1alpha1.NodeType{devices()},
			objects: []client.Object{serving(resource), asking(0, "3", initContainer("2", always))}},
		"none": {reason: "zero is no request", types: []*v1alpha1.NodeType{devices(), plain(2)},
			objects: []client.Object{serving(resource), asking(0, "0")}, want: []string{"cpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			results := scheduleWith(t, func(o *options.Options) { o.IgnoreDRARequests = false }, tc.types, tc.objects...)
			var got []string
			for _, planned := range results.NewNodeClaims {
				got = append(got, planned.InstanceTypeOptions.OrderByPrice(planned.Requirements)[0].Name)
				nodeClaim := planned.ToNodeClaim()
				if drivers := nodeClaim.Annotations[karpv1.DRADriversAnnotationKey]; drivers != tc.drivers {
					t.Errorf("the NodeClaim waits for %q, want %q", drivers, tc.drivers)
				}
				if _, registered := nodeClaim.Spec.Resources.Requests[resource]; registered != (tc.drivers == "") && tc.want[0] != "cpu" {
					t.Errorf("the NodeClaim waits for the resource: %v, and devices of %q", registered, tc.drivers)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s\nerrors: %v", tc.reason, diff, results.PodErrors)
			}
		})
	}
}
