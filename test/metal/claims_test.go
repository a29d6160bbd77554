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

// TestClaimBringsServer has a tenant's pod wait for two devices that no driver has published yet: Karpenter claims a server
// because of its NodeType's devices, the server boots and joins, the driver publishes them there, and the container gets them.
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

	w.logf("== the tenant installs the driver, which has no node yet, and creates a pod with a claim for two devices")
	w.createTenant(t)
	if err := dradriver.Install(t.Context(), bin, w.tenant.Client, strings.TrimPrefix(w.tenant.REST.Host, "https://"), 2); err != nil {
		t.Fatal(err)
	}
	w.createClaimedPod(t, "train", 2)
	w.untilRuns(t, "train")
	w.checkDevices(t, "train", 2)
	w.checkSeen(t, 2, "control groups", "processes")

	w.logf("== the pod and its claim are deleted; the server is cleaned and available")
	w.remove(t, &corev1.Pod{}, "train")
	w.remove(t, &resourcev1.ResourceClaim{}, "train")
	w.untilAllReleased(t)
}

// typeWithDevices are servers without resources that a device plugin would advertise.
func typeWithDevices() v1alpha1.NodeTypeTemplate {
	nodeType := nodeType(nodeTypeName, "cpu", "64", "memory", "512Gi")
	nodeType.Cost = ptr.To(int64(1000))
	nodeType.Devices = []v1alpha1.NodeTypeDevice{{
		Driver: dradriver.Driver, Count: 2,
		Attributes: map[string]v1alpha1.NodeTypeDeviceAttribute{"model": {String: ptr.To(draModel)}},
		Capacity:   map[string]resource.Quantity{"memory": resource.MustParse("80Gi")},
	}}
	return nodeType
}

// createClaimedPod creates a pod that prints its environment, and its claim for devices, of the same name.
func (w *stackFixture) createClaimedPod(t *testing.T, name string, count int64) {
	t.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpus", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: dradriver.Driver, Count: count,
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].model == %q", dradriver.Driver, draModel),
		}}},
	}}}
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
	for n := range count {
		for _, want := range []string{
			fmt.Sprintf("GPU_DEVICE_%d=gpu-%d", n, n), fmt.Sprintf("GPU_DEVICE_%d_RESOURCE_CLAIM=%s", n, claim.UID),
		} {
			if !slices.Contains(lines, want) {
				t.Errorf("the environment of pod %s lacks %s: it has %v", name, want, lines)
			}
		}
	}
	if got := w.machineOf(t, w.nodeOf(t, name)).Spec.RequestedDrivers; !slices.Equal(got, []string{dradriver.Driver}) {
		t.Errorf("the Machine of pod %s was requested for the drivers %v, want %s", name, got, dradriver.Driver)
	}
}
