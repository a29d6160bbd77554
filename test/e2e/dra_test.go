// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/system"
)

// A pod claims a device with at least 80 GiB. Of two types only the dearer one has such devices; its server is claimed,
// although there is no node yet on which a driver could have said so. When the driver has published them, the scheduler
// allocates one of them, and the pod runs.
func TestDRAClaimSelectsNodeType(t *testing.T) {
	w := enter(t, devices)
	w.needsDrivers(t)
	w.deviceTypes(t)
	w.createClaimingPod(t, "train-80", resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{deviceRequest("gpu", `device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0`)},
	})
	w.untilRuns(t, "train-80")
	machine := w.machineOf(t, "train-80")
	if got := machine.Status.NodeTypeRef.Name; got != "dra-80" {
		t.Errorf("the pod got a server of type %s, want dra-80, the only one with devices of 80Gi", got)
	}
	if got := strings.Join(machine.Spec.RequestedDrivers, ","); got != "gpu.example.com" {
		t.Errorf("the Machine asks for the drivers %q, want gpu.example.com", got)
	}
	if got := w.allocatedTo(t, "train-80"); len(got) != 1 || got[0].Driver != "gpu.example.com" {
		t.Errorf("the scheduler has allocated %v, want one device of gpu.example.com", got)
	}
	w.untilInitialized(t, 1) // which waits for the driver
}

// untilInitialized waits until there are so many NodeClaims, and all are initialized. No node may lack resources then.
func (w *fixture) untilInitialized(t *testing.T, count int) {
	t.Helper()
	w.eventually(t, fmt.Sprintf("%d NodeClaims are initialized", count), func(ctx context.Context) (string, error) {
		claims, err := w.nodeClaims(ctx)
		if err != nil || len(claims) != count {
			return fmt.Sprintf("%d NodeClaims", len(claims)), err
		}
		for i := range claims {
			if condition := claims[i].StatusConditions().Get(karpv1.ConditionTypeInitialized); !condition.IsTrue() {
				return claims[i].Name + ": " + condition.Message, nil
			}
			if condition := claims[i].StatusConditions().Get(v1alpha1.ConditionResourcesAdvertised); condition.IsFalse() {
				return "", fmt.Errorf("%s: %s", claims[i].Name, condition.Message)
			}
		}
		return "", nil
	})
}

// A pod claims a GPU and a network card at one PCIe root. Which root that is will be known when the server runs; that
// the type has such pairs is known.
func TestDRAMatchAttribute(t *testing.T) {
	system.Only(t)
	w := enter(t, devices)
	w.needsDrivers(t)
	w.deviceTypes(t)
	w.createClaimingPod(t, "rdma", resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{deviceRequest("gpu", `device.driver == "gpu.example.com"`),
			deviceRequest("nic", `device.driver == "nic.example.com"`)},
		Constraints: []resourcev1.DeviceConstraint{{MatchAttribute: ptr.To(resourcev1.FullyQualifiedName("resource.kubernetes.io/pcieRoot"))}},
	})
	w.untilRuns(t, "rdma")
	if got := w.machineOf(t, "rdma").Status.NodeTypeRef.Name; got != "dra-80" {
		t.Errorf("the pod got a server of type %s, want dra-80, the only one with network cards", got)
	}
	if got := w.allocatedTo(t, "rdma"); len(got) != 2 {
		t.Errorf("the scheduler has allocated %v, want a GPU and a network card", got)
	}
}

// Pods ask for GPUs by a resource that a DeviceClass serves (KEP-5004), once by its extendedResourceName and once by the name of the class.
// The type declares devices alone, or the same GPUs as a resource, too. The pods run, and the pods of one type share a server. The node is
// initialized, and the server is released when the pods have gone.
func TestDRAExtendedResource(t *testing.T) {
	system.Only(t)
	w := enter(t, devices)
	w.needsDrivers(t)
	w.deviceTypes(t)
	w.make(t, w.tenant, &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"},
		Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To(extendedGPU), Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}}},
	})
	asking := func(name, nodeType, resource, count string) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name},
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0),
				Containers: []corev1.Container{w.container(resources("cpu", "4", resource, count))}},
		}
		w.group.place(&pod.Spec)
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[v1alpha1.NodeTypeLabelKey] = nodeType
		if err := w.tenant.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	for _, nodeType := range []string{"dra-40", "dra-80"} {
		asking("two-of-"+nodeType, nodeType, extendedGPU, "2")
		w.untilRuns(t, "two-of-"+nodeType)
		machine := w.machineOf(t, "two-of-"+nodeType)
		if got := strings.Join(machine.Spec.RequestedDrivers, ","); got != "gpu.example.com" {
			t.Errorf("the Machine of %s asks for the drivers %q, want gpu.example.com", nodeType, got)
		}
		asking("more-of-"+nodeType, nodeType, resourcev1.ResourceDeviceClassPrefix+"gpu.example.com", "2")
		w.untilRuns(t, "more-of-"+nodeType)
		if again := w.machineOf(t, "more-of-"+nodeType); again.Name != machine.Name {
			t.Errorf("the second pod of %s is on Machine %s, and two GPUs of %s were free", nodeType, again.Name, machine.Name)
		}
	}
	w.untilInitialized(t, 2)
	for _, name := range []string{"two-of-dra-40", "more-of-dra-40", "two-of-dra-80", "more-of-dra-80"} {
		w.remove(t, w.tenant, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name}})
	}
	released := func() {
		t.Helper()
		w.eventually(t, "the servers are released", func(ctx context.Context) (string, error) {
			machines, err := w.machines(ctx)
			if err != nil || len(machines) > 0 {
				return fmt.Sprintf("%d Machines", len(machines)), err
			}
			return "", nil
		})
	}
	released()

	deployment := w.createDeployment(t, "moves", resources("cpu", "4", extendedGPU, "2"))
	before := w.podOf(t, deployment)
	server := w.machineOf(t, before).Name
	w.untilInitialized(t, 1)
	pool := &karpv1.NodePool{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: w.group.pools[0]}, pool); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(pool.DeepCopy())
	pool.Spec.Template.Labels = map[string]string{"example.com/round": "second"}
	if err := w.tenant.Patch(t.Context(), pool, patch); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "the drifted node is drained", func(ctx context.Context) (string, error) {
		err := w.tenant.Get(ctx, client.ObjectKey{Namespace: w.group.namespace, Name: before}, &corev1.Pod{})
		if err == nil {
			return "pod " + before + " is there", nil
		}
		return "", client.IgnoreNotFound(err)
	})
	if now := w.machineOf(t, w.podOf(t, deployment)).Name; now == server {
		t.Errorf("the pod is on Machine %s again, which has drifted", now)
	}
	w.remove(t, w.tenant, deployment)
	released()
}

// Eight pods share two GPUs by memory, and two more get the halves of a third GPU: all of them on one server, which was planned for them.
// A pod for the whole of the third GPU waits until both halves are free.
func TestDRASharedDevices(t *testing.T) {
	system.Only(t)
	w := enter(t, devices)
	w.needsDrivers(t)
	w.deviceTypes(t)
	part := func(selector string) *resourcev1.ExactDeviceRequest {
		return &resourcev1.ExactDeviceRequest{DeviceClassName: "devices.example.com", Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}}}
	}
	claiming := func(name string, request *resourcev1.ExactDeviceRequest) {
		w.createClaimingPod(t, name, resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: request}}})
	}
	var pods []string
	for n := range 8 {
		shared := part(`device.driver == "shared.example.com"`)
		shared.Capacity = &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
			"memory": resource.MustParse("20Gi")}}
		pods = append(pods, fmt.Sprint("share-", n))
		claiming(pods[n], shared)
	}
	half := `device.driver == "parts.example.com" && device.attributes["parts.example.com"].part == "half"`
	for _, name := range []string{"half-0", "half-1"} {
		pods = append(pods, name)
		claiming(name, part(half))
	}
	w.untilRuns(t, pods...)
	machine, given := w.machineOf(t, pods[0]), map[string]int{}
	for _, name := range pods {
		if other := w.machineOf(t, name); other.Name != machine.Name {
			t.Errorf("pod %s is on Machine %s, and %s on %s", name, other.Name, pods[0], machine.Name)
		}
		device := w.allocatedTo(t, name)[0]
		given[device.Driver+"/"+device.Device]++
	}
	if len(given) != 4 {
		t.Errorf("the devices given are %v, want two that four pods share, and two halves", given)
	}
	claiming("whole", part(strings.ReplaceAll(half, `"half"`, `"whole"`)))
	w.eventually(t, "pod whole waits for the halves", w.podHasEvent("whole", "cannot allocate all claims"))
	for _, name := range []string{"half-0", "half-1"} {
		w.remove(t, w.tenant, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name}})
	}
	w.untilRuns(t, "whole")
	if other := w.machineOf(t, "whole"); other.Name != machine.Name {
		t.Errorf("pod whole is on Machine %s, and its GPU on %s", other.Name, machine.Name)
	}
}

// sharedAndParts are the devices that the servers gpu-80 have besides the GPUs of gpu.example.com.
func sharedAndParts() []v1alpha1.NodeTypeDevice {
	eighty, forty, step := resource.MustParse("80Gi"), resource.MustParse("40Gi"), resource.MustParse("1Gi")
	part := func(name string, count int32, takes resource.Quantity) v1alpha1.NodeTypeDevice {
		return v1alpha1.NodeTypeDevice{Driver: "parts.example.com", Count: count,
			Attributes:       map[string]v1alpha1.NodeTypeDeviceAttribute{"part": {String: &name}},
			ConsumesCounters: []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu", Counters: map[string]resource.Quantity{"memory": takes}}}}
	}
	whole := part("whole", 1, eighty)
	whole.SharedCounters = []v1alpha1.NodeTypeCounterSet{{Name: "gpu", Counters: map[string]resource.Quantity{"memory": eighty}}}
	return []v1alpha1.NodeTypeDevice{whole, part("half", 2, forty), {
		Driver: "shared.example.com", Count: 2, AllowMultipleAllocations: true,
		Capacity: map[string]resource.Quantity{"memory": eighty},
		RequestPolicies: map[string]resourcev1.CapacityRequestPolicy{"memory": {Default: &eighty,
			ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: &step, Max: &eighty, Step: &step}}},
	}}
}

// A pod that claims no device never gets a server with devices, even if it insists on that type.
func TestDRANodeTypeNeedsClaim(t *testing.T) {
	system.Only(t)
	w := enter(t, devices)
	w.deviceTypes(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: "web"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{v1alpha1.NodeTypeLabelKey: "dra-40"},
			Containers:   []corev1.Container{w.container(nil)},
		},
	}
	if err := w.tenant.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, "an event on pod web says why it waits",
		w.podHasEvent("web", "dra-40", "has accelerators (gpu.example.com) and the pod requests none of them"))
	machines, err := w.machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(machines) > 0 {
		t.Errorf("Machine %s was made for a pod that claims no device", machines[0].Name)
	}
}

// extendedGPU is a resource that the dear type lists besides its devices, for a cluster with a device plugin. It is the same GPUs.
const extendedGPU = "dra.example.com/gpu"

// deviceTypes are two types of servers with devices, a cheap one and a dear one, a pool of both for the tenant, and the
// class by which its pods claim devices. They are gone when the test ends.
func (w *fixture) deviceTypes(t *testing.T) {
	t.Helper()
	w.needsServers(t)
	nodeType := func(name string, cost int64, has corev1.ResourceList, devices ...v1alpha1.NodeTypeDevice) v1alpha1.NodeTypeTemplate {
		return v1alpha1.NodeTypeTemplate{Name: "dra-" + name, HardwareProfile: v1alpha1.HardwareProfile{
			Resources:      has,
			Cost:           &cost,
			Devices:        devices,
			BareMetalHosts: &v1alpha1.HostSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"devices": "gpu-" + name}}},
		}}
	}
	gpus := func(memory string, roots ...string) v1alpha1.NodeTypeDevice {
		return v1alpha1.NodeTypeDevice{Driver: "gpu.example.com", Count: 4,
			Capacity: map[string]resource.Quantity{"memory": resource.MustParse(memory)}, PCIeRoots: roots}
	}
	provider := &v1alpha1.NodeProvider{
		ObjectMeta: metav1.ObjectMeta{Name: "dra"},
		Spec: v1alpha1.NodeProviderSpec{
			Properties: w.fleetProperties(t),
			Metal3: v1alpha1.Metal3Fleet{ClusterRef: v1alpha1.Metal3ClusterRef{Namespace: hostNamespace}, NodeTypes: []v1alpha1.NodeTypeTemplate{
				nodeType("40", 1000, resources("cpu", "64", "memory", "256Gi"), gpus("40Gi")),
				nodeType("80", 2000, resources("cpu", "64", "memory", "256Gi", extendedGPU, "4"), append(sharedAndParts(),
					gpus("80Gi", "a", "b"), v1alpha1.NodeTypeDevice{Driver: "nic.example.com", Count: 2, PCIeRoots: []string{"a", "b"}})...),
			}},
		},
	}
	class := &v1alpha1.MetalNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "dra"},
		Spec:       v1alpha1.MetalNodeClassSpec{ProviderRef: &v1alpha1.NameReference{Name: "dra"}},
	}
	pool := &karpv1.NodePool{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Name: "default"}, pool); err != nil {
		t.Fatal(err)
	}
	pool = &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "dra"}, Spec: pool.Spec}
	pool.Spec.Template.Spec.NodeClassRef.Name = "dra"
	// The tests of the default pool change this one.
	pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("5s")
	devices := &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "devices.example.com"},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{
				Expression: `device.driver in ["gpu.example.com", "nic.example.com", "shared.example.com", "parts.example.com"]`}},
		}},
	}
	w.make(t, w.management, provider)
	w.make(t, w.tenant, class)
	w.make(t, w.tenant, pool)
	w.make(t, w.tenant, devices)
	t.Cleanup(func() { w.giveBack(t) }) // before the types go
	w.eventually(t, "NodePool dra has servers and is ready", func(ctx context.Context) (string, error) {
		for _, name := range []string{"dra-40", "dra-80"} {
			nodeType := &v1alpha1.NodeType{}
			if err := w.management.Get(ctx, client.ObjectKey{Name: name}, nodeType); client.IgnoreNotFound(err) != nil {
				return "", err
			}
			if nodeType.Status.Capacity.Available != 1 {
				return name + " has no server available", nil
			}
		}
		if err := w.tenant.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return "", err
		}
		if !pool.StatusConditions().Root().IsTrue() {
			return "NodePool dra is not ready", nil
		}
		return "", nil
	})
}

// make creates an object that is deleted when the test ends, after what the test itself has left. One of the same name, of the
// test before, may still be there with a finalizer.
func (w *fixture) make(t *testing.T, in client.Client, object client.Object) {
	t.Helper()
	w.eventually(t, fmt.Sprintf("%T %s can be created", object, object.GetName()), func(ctx context.Context) (string, error) {
		err := in.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) {
			return err.Error(), nil
		}
		return "", err
	})
	t.Cleanup(func() { w.remove(t, in, object) })
}

func deviceRequest(name, selector string) resourcev1.DeviceRequest {
	return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "devices.example.com",
		Selectors:       []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: selector}}},
	}}
}

// createClaimingPod creates a pod, and the template of its claim.
func (w *fixture) createClaimingPod(t *testing.T, name string, devices resourcev1.DeviceClaim) {
	t.Helper()
	w.make(t, w.tenant, &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name},
		Spec:       resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: devices}},
	})
	container := w.container(resources("cpu", "4"))
	container.Resources.Limits, container.Resources.Claims = nil, []corev1.ResourceClaim{{Name: "devices"}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.group.namespace, Name: name},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: &name}},
			Containers:     []corev1.Container{container},
		},
	}
	w.group.place(&pod.Spec)
	if err := w.tenant.Create(t.Context(), pod); err != nil {
		t.Fatalf("creating pod %s, %v", name, err)
	}
}

// allocatedTo returns the devices that the pod's claim has been given.
func (w *fixture) allocatedTo(t *testing.T, pod string) []resourcev1.DeviceRequestAllocationResult {
	t.Helper()
	placed := &corev1.Pod{}
	if err := w.tenant.Get(t.Context(), client.ObjectKey{Namespace: w.group.namespace, Name: pod}, placed); err != nil {
		t.Fatal(err)
	}
	if len(placed.Status.ResourceClaimStatuses) != 1 || placed.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
		t.Fatalf("pod %s has no claim: %v", pod, placed.Status.ResourceClaimStatuses)
	}
	claim := &resourcev1.ResourceClaim{}
	key := client.ObjectKey{Namespace: w.group.namespace, Name: *placed.Status.ResourceClaimStatuses[0].ResourceClaimName}
	if err := w.tenant.Get(t.Context(), key, claim); err != nil {
		t.Fatal(err)
	}
	if claim.Status.Allocation == nil {
		t.Fatalf("claim %s of pod %s, which runs, is not allocated", claim.Name, pod)
	}
	return claim.Status.Allocation.Devices.Results
}
