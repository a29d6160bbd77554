// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/dradriver"
)

// draModel is what the driver publishes of each device. The NodeType declares it, and the claim selects by it.
const draModel = "LATEST-GPU-MODEL"

const (
	// claimVariable is the variable in which the driver has the UID of the claim that device n was given by.
	claimVariable = "GPU_DEVICE_GPU_%d_RESOURCE_CLAIM"
	// shared and parts are drivers of devices that claims share, and of devices in partitions. draResource is served by the class of the
	// whole devices.
	shared, parts = "shared.example.com", "parts.example.com"
	draResource   = "example.com/gpu"
)

// TestClaimBringsServer has a tenant's pods wait for devices that no driver has published yet: two by a claim, one by an extended resource,
// one that four pods share, and two partitions of another one. Karpenter claims one server because of its NodeType's devices, the server
// boots and joins, the drivers publish them there, and the containers get them.
func TestClaimBringsServer(t *testing.T) {
	w := newChain(t, "claims-rack.yaml", programs(dradriver.Program, "helm"))
	defer w.keepJournal(t)()

	w.logf("== the platform team registers a server, and a NodeType with its devices")
	if err := dradriver.WriteImage(bin, filepath.Join(w.dir, "inventory", "container-images")); err != nil {
		t.Fatal(err)
	}
	image, _ := w.serveImages(t, container)
	w.createFleet(t, []v1alpha1.NodeTypeTemplate{typeWithDevices()}, image)
	w.registerServers(t)
	w.untilFleetReady(t)

	w.logf("== the tenant installs the drivers, which have no node yet, and creates pods that ask for devices in four ways")
	w.createTenant(t)
	for _, options := range []dradriver.Options{
		{Devices: 3, Resource: draResource}, {Name: shared, Devices: 1, Shared: true}, {Name: parts, Devices: 1, Partitions: 2},
	} {
		err := dradriver.Install(t.Context(), bin, w.tenant.Client, strings.TrimPrefix(w.tenant.REST.Host, "https://"), options)
		if err != nil {
			t.Fatal(err)
		}
	}
	claimed := []string{"train"}
	w.createClaimedPod(t, "train", &resourcev1.ExactDeviceRequest{DeviceClassName: dradriver.Driver, Count: 2,
		Selectors: selecting(fmt.Sprintf("device.attributes[%q].model == %q", dradriver.Driver, draModel))})
	for _, name := range []string{"share-0", "share-1", "share-2", "share-3"} {
		claimed = append(claimed, name)
		w.createClaimedPod(t, name, &resourcev1.ExactDeviceRequest{DeviceClassName: shared, Count: 1,
			Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
				"memory": resource.MustParse("20Gi"), "compute": resource.MustParse("25")}}})
	}
	for _, name := range []string{"half-0", "half-1"} {
		claimed = append(claimed, name)
		w.createClaimedPod(t, name, &resourcev1.ExactDeviceRequest{DeviceClassName: parts, Count: 1,
			Selectors: selecting(fmt.Sprintf(`device.capacity[%q].memory.compareTo(quantity("40Gi")) == 0`, parts))})
	}
	w.createPod(t, w.tenant.Client, "resource", workload(corev1.ResourceList{draResource: resource.MustParse("1")}, "--environment"))
	for _, name := range append(claimed, "resource") {
		w.untilRuns(t, name)
		if node := w.nodeOf(t, name); node != w.nodeOf(t, "train") {
			t.Errorf("pod %s is on node %s, and pod train on %s", name, node, w.nodeOf(t, "train"))
		}
	}
	w.checkDevices(t, "train", 2)
	if given := w.podLog(t, w.kube, "resource"); !strings.Contains(given, "GPU_DEVICE_") {
		t.Errorf("the container of pod resource has no device:\n%s", given)
	}
	w.checkSeen(t, 2, "control groups", "processes")

	w.logf("== the pods and their claims are deleted; the server is cleaned and available")
	w.remove(t, &corev1.Pod{}, "resource")
	for _, name := range claimed {
		w.remove(t, &corev1.Pod{}, name)
		w.remove(t, &resourcev1.ResourceClaim{}, name)
	}
	w.untilAllReleased(t)
}

// typeWithDevices are servers without resources that a device plugin would advertise.
func typeWithDevices() v1alpha1.NodeTypeTemplate {
	nodeType := nodeType(nodeTypeName, "cpu", "64", "memory", "512Gi")
	nodeType.Cost = ptr.To(int64(1000))
	model := map[string]v1alpha1.NodeTypeDeviceAttribute{"model": {String: ptr.To(draModel)}}
	whole := map[string]resource.Quantity{"memory": resource.MustParse("80Gi"), "compute": resource.MustParse("100")}
	half := map[string]resource.Quantity{"memory": resource.MustParse("40Gi"), "compute": resource.MustParse("50")}
	policy := func(step, most string) resourcev1.CapacityRequestPolicy {
		all := ptr.To(resource.MustParse(most))
		return resourcev1.CapacityRequestPolicy{Default: all, ValidRange: &resourcev1.CapacityRequestPolicyRange{
			Min: ptr.To(resource.MustParse(step)), Step: ptr.To(resource.MustParse(step)), Max: all}}
	}
	consumes := func(counters map[string]resource.Quantity) []v1alpha1.NodeTypeCounterConsumption {
		return []v1alpha1.NodeTypeCounterConsumption{{CounterSet: "gpu", Counters: counters}}
	}
	nodeType.Devices = []v1alpha1.NodeTypeDevice{
		{Driver: dradriver.Driver, Count: 3, Attributes: model, Capacity: whole},
		{Driver: shared, Count: 1, Attributes: model, Capacity: whole, AllowMultipleAllocations: true,
			RequestPolicies: map[string]resourcev1.CapacityRequestPolicy{"memory": policy("1Gi", "80Gi"), "compute": policy("1", "100")}},
		{Driver: parts, Count: 1, Attributes: model, Capacity: whole, ConsumesCounters: consumes(whole),
			SharedCounters: []v1alpha1.NodeTypeCounterSet{{Name: "gpu", Counters: whole}}},
		{Driver: parts, Count: 2, Attributes: model, Capacity: half, ConsumesCounters: consumes(half)},
	}
	return nodeType
}

func selecting(expression string) []resourcev1.DeviceSelector {
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
}

// createClaimedPod creates a pod that prints its environment, and its claim, of the same name.
func (w *stackFixture) createClaimedPod(t *testing.T, name string, request *resourcev1.ExactDeviceRequest) {
	t.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpus", Exactly: request}}
	w.create(t, w.tenant.Client, claim)
	spec := workload(nil, "--environment")
	spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimName: &claim.Name}}
	spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "devices"}}
	w.createPod(t, w.tenant.Client, name, spec)
}

// checkDevices fails if the environment of the pod's container lacks the devices of its claim: Ready would not say so.
func (w *stackFixture) checkDevices(t *testing.T, name string, count int) {
	t.Helper()
	claim := &resourcev1.ResourceClaim{}
	if err := w.tenant.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, claim); err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(w.podLog(t, w.kube, name), "\n"),
		func(line string) bool { return !strings.HasPrefix(line, "GPU_DEVICE_") })
	slices.Sort(lines)
	w.logf("pod %s on node %s, with claim %s: %s", name, w.nodeOf(t, name), claim.UID, strings.Join(lines, " "))
	for _, result := range claim.Status.Allocation.Devices.Results {
		var n int
		if _, err := fmt.Sscanf(result.Device, "gpu-%d", &n); err != nil {
			t.Fatalf("pod %s has device %q, %v", name, result.Device, err)
		}
		for _, want := range []string{
			fmt.Sprintf("GPU_DEVICE_%d=gpu-%d", n, n), fmt.Sprintf(claimVariable+"=%s", n, claim.UID),
		} {
			if !slices.Contains(lines, want) {
				t.Errorf("the environment of pod %s lacks %s: it has %v", name, want, lines)
			}
		}
	}
	if got := len(claim.Status.Allocation.Devices.Results); got != count {
		t.Errorf("claim %s has %d devices, want %d", name, got, count)
	}
	if got := w.machineOf(t, w.nodeOf(t, name)).Spec.RequestedDrivers; !slices.Equal(got, []string{dradriver.Driver, parts, shared}) {
		t.Errorf("the Machine of pod %s was requested for the drivers %v, want %s, %s and %s", name, got, dradriver.Driver, parts, shared)
	}
}
