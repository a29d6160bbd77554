// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package snippets

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const oneTypePerProfile = `
nodeTypes:
- name: "h100-8x"
  displayName: "H100 8-GPU"
  resources:
    cpu: "96"
    memory: 768Gi
    nvidia.com/gpu: "8"
  bareMetalHosts:
    selector:
      matchLabels:
        gpu-model: h100
        gpu-count: "8"
  properties:
    vcluster.com/os-image: ubuntu-noble-gpu
- name: "a100-4x"
  displayName: "A100 4-GPU"
  resources:
    cpu: "64"
    memory: 256Gi
    nvidia.com/gpu: "4"
  bareMetalHosts:
    selector:
      matchLabels:
        gpu-model: a100
        gpu-count: "4"
  properties:
    vcluster.com/os-image: ubuntu-noble-gpu
`

func hasServer(machine *v1alpha1.Machine) bool { return machine.Status.ProviderID != "" }

func TestGPUFleetOperationsOneNodeTypePerHardwareProfile(t *testing.T) {
	w := newFixture(t)
	w.server("server-01", "gpu-model=h100", "gpu-count=8", "rack=rack-a", "datacenter=us-east-1")
	w.server("server-02", "gpu-model=a100", "gpu-count=4")
	w.server("server-03", "gpu-model=h100", "gpu-count=4")
	w.nodeTypes(oneTypePerProfile)
	// 10 per cpu, 2 per GiB, 10000 per GPU.
	if cost, want := w.nodeType("h100-8x", 1).Status.Cost, int64(960+1536+80000); cost != want {
		t.Errorf("h100-8x costs %d, want %d", cost, want)
	}
	w.nodeType("a100-4x", 1)

	// Labels are read only when a server is chosen.
	machine := w.standAlone("by-type", "{nodeTypeRef: {name: h100-8x}}", "has its server", hasServer)
	if got := machine.Status.HostRef.Name; got != "server-01" {
		t.Errorf("the Machine has %s, want server-01", got)
	}
	host := &bmov1alpha1.BareMetalHost{}
	host.Namespace, host.Name = hosts, "server-01"
	if err := w.Client.Patch(t.Context(), host,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"gpu-model":"a100","gpu-count":"4"}}}`))); err != nil {
		t.Fatal(err)
	}
	w.nodeType("a100-4x", 2)
	if claimed := w.awaitClaimed(1); claimed["server-01"] != "by-type" {
		t.Errorf("after its labels changed, claimed are %v", claimed)
	}
}

func TestGPUFleetOperationsPerTenantNodeTypes(t *testing.T) {
	w := newFixture(t)
	w.server("server-01", "gpu-model=h100", "gpu-count=8", "tenant=customer-a")
	w.server("server-02", "gpu-model=h100", "gpu-count=8", "tenant=customer-b")
	w.server("server-03", "gpu-model=h100", "gpu-count=8")
	w.nodeTypes(`
nodeTypes:
- name: "customer-a-h100-8x"
  displayName: "Customer A H100 8-GPU"
  resources:
    cpu: "96"
    memory: 768Gi
    nvidia.com/gpu: "8"
  bareMetalHosts:
    selector:
      matchLabels:
        gpu-model: h100
        gpu-count: "8"
        tenant: customer-a
  properties:
    vcluster.com/os-image: ubuntu-noble-gpu
`)
	w.nodeType("customer-a-h100-8x", 1)
	first := w.standAlone("first", "{resources: {nvidia.com/gpu: 1}}", "has its server", hasServer)
	if first.Status.HostRef.Name != "server-01" {
		t.Errorf("the Machine has %s, want the tenant's server-01", first.Status.HostRef.Name)
	}
	w.standAlone("second", "{resources: {nvidia.com/gpu: 1}}", "is told that there is none", func(machine *v1alpha1.Machine) bool {
		return len(machine.Status.Conditions) > 0 && machine.Status.HostRef == nil && machine.Status.Phase == v1alpha1.MachinePending
	})
	w.awaitClaimed(1)
}

// The fragment names no servers, so the type has none until its provider says that all are meant.
func TestGPUFleetOperationsCostConfiguration(t *testing.T) {
	w := newFixture(t)
	w.server("server-01", "gpu-model=h100")
	w.nodeTypes(`
nodeTypes:
- name: "h100-8x"
  cost: 500000
  resources:
    cpu: "96"
    memory: 768Gi
    nvidia.com/gpu: "8"
`)
	poll.Eventually(t, "the type says that it has no servers", func(ctx context.Context) error {
		nodeType := &v1alpha1.NodeType{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: "h100-8x"}, nodeType); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(nodeType.Status.Conditions, v1alpha1.ConditionHasCapacity)
		if condition == nil || condition.Reason != v1alpha1.ReasonNoSelector || nodeType.Status.Cost != 500000 {
			return fmt.Errorf("its status is %+v", nodeType.Status)
		}
		return nil
	})
	w.shell("kubectl annotate nodeprovider metal3-provider karpenter.metal3.io/select-all-hosts=h100-8x")
	if cost := w.nodeType("h100-8x", 1).Status.Cost; cost != 500000 {
		t.Errorf("h100-8x costs %d, want 500000", cost)
	}
}

// The fragment names no resources: these are what Metal3 has found.
func TestGPUFleetOperationsHeterogeneousGPUFleets(t *testing.T) {
	w := newFixture(t)
	inspected := func(name, model string, cpus, gib int) {
		host := env.AvailableHost(hosts, name, map[string]string{"gpu-model": model})
		host.Status.HardwareDetails.CPU.Count, host.Status.HardwareDetails.RAMMebibytes = cpus, gib<<10
		w.CreateHost(t, host)
	}
	inspected("server-h", "h100", 96, 768)
	inspected("server-a", "a100", 64, 256)
	w.nodeTypes(`
nodeTypes:
- name: "h100-8x"
  bareMetalHosts:
    selector:
      matchLabels:
        gpu-model: h100
- name: "a100-4x"
  bareMetalHosts:
    selector:
      matchLabels:
        gpu-model: a100
`)
	for name, want := range map[string]corev1.ResourceList{
		"h100-8x": env.Resources("cpu", "96", "memory", "768Gi"), "a100-4x": env.Resources("cpu", "64", "memory", "256Gi"),
	} {
		if diff := cmp.Diff(want, w.nodeType(name, 1).Status.Resources); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	const image = "properties: {vcluster.com/os-image: ubuntu-noble-gpu}"
	for name, tc := range map[string]struct{ spec, want string }{
		"by-name": {"{nodeTypeRef: {name: h100-8x}, " + image + "}", "server-h"},
		// The cheapest. It names no resources, as the Machines of a static pool do: what asks for cpu alone gets no server with GPUs.
		"any": {"{requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}], " + image + "}", "server-a"},
	} {
		if got := w.standAlone(name, tc.spec, "has its server", hasServer).Status.HostRef.Name; got != tc.want {
			t.Errorf("Machine %s has %s, want %s", name, got, tc.want)
		}
	}
}

const pinned = `
privateNodes:
  enabled: true
  autoNodes:
  - provider: metal3-provider
    static:
    - name: pinned-gpu
      quantity: 1
      nodeTypeSelector:
      - property: vcluster.com/node-type
        value: h100-8x
      properties:
        metal3.vcluster.com/server-name: server-01
`

func TestGPUFleetOperationsServerPinning(t *testing.T) {
	w := newFixture(t)
	w.nodeTypes(oneTypePerProfile)
	for _, name := range []string{"server-00", "server-01", "server-02"} {
		w.server(name, "gpu-model=h100", "gpu-count=8")
	}
	w.nodeType("h100-8x", 3)
	w.tenantCluster(pinned)
	w.startProvider()
	if claimed := w.awaitClaimed(1); claimed["server-01"] == "" {
		t.Errorf("claimed are %v, want server-01 alone", claimed)
	}
	// It is claimed: another Machine that is pinned to it fails, and gets no other server.
	w.standAlone("late", "{nodeTypeRef: {name: h100-8x}, properties: {metal3.vcluster.com/server-name: server-01}}", "has failed",
		func(machine *v1alpha1.Machine) bool {
			return machine.Status.Phase == v1alpha1.MachineFailed && machine.Status.HostRef == nil
		})
	w.awaitClaimed(1)
}

// The commands of the page, unchanged.
const (
	recommendedLabels = `kubectl label baremetalhost server-01 -n metal3-system \
gpu-model=h100 \
gpu-count=8 \
rack=rack-a \
datacenter=us-east-1`
	updateLabel = `kubectl label baremetalhost server-01 -n metal3-system nvlink-domain=nvlink-0 --overwrite`
	tenantLabel = `kubectl label baremetalhost server-01 -n metal3-system tenant=customer-a`
)

func TestGPUFleetOperationsLabelStrategy(t *testing.T) {
	w := newFixture(t)
	w.nodeTypes(oneTypePerProfile)
	w.server("server-01")
	w.nodeType("h100-8x", 0)
	w.shell(recommendedLabels)
	w.nodeType("h100-8x", 1)

	// "Label changes do not trigger re-provisioning", and "have no effect until you delete the Machine".
	before, _, _ := w.installedFrom("{nodeTypeRef: {name: h100-8x}, properties: {vcluster.com/user-data: '#cloud-config'}}", "claimed")
	w.shell(updateLabel)
	w.shell(tenantLabel)
	w.server("server-02", "gpu-model=h100", "gpu-count=8", "nvlink-domain=nvlink-0")
	w.nodeType("h100-8x", 2) // the manager has seen the labels: it processes hosts in order
	later := w.standAlone("later", "{requirements: [{key: nvlink-domain, operator: In, values: [nvlink-0]}], resources: {nvidia.com/gpu: 1}}",
		"has its server", hasServer)
	if later.Status.HostRef.Name != "server-02" {
		t.Errorf("the later Machine has %s", later.Status.HostRef.Name)
	}
	after, host, _ := w.installed("claimed")
	if after.Status.ProviderID != before.Status.ProviderID || after.Status.NodeLabels["nvlink-domain"] != "" ||
		host.Labels["tenant"] != "customer-a" {
		t.Errorf("before its labels changed, the Machine was %+v, and is %+v", before.Status, after.Status)
	}
}

func TestGPUFleetOperationsGPUResources(t *testing.T) { podGetsServer(t, oneGPU) }

// "Updating an existing resource does not trigger re-provisioning", and what comes after the node type's update gets the
// new image. No provider runs here, so nothing is rolled over.
func TestGPUFleetOperationsRotatingOSImages(t *testing.T) {
	w := newFixture(t)
	w.nodeTypes(oneTypePerProfile)
	for _, name := range []string{"server-01", "server-02", "server-03"} {
		w.server(name, "gpu-model=h100", "gpu-count=8")
	}
	w.nodeType("h100-8x", 3)
	const spec = "{nodeTypeRef: {name: h100-8x}, properties: {vcluster.com/user-data: '#cloud-config'}}"
	const old, edited, next = "https://images.example.com/noble.qcow2", "https://images.example.com/noble-edited.qcow2",
		"https://images.example.com/noble-2.qcow2"
	image := func(name, url string) string {
		return `
apiVersion: karpenter.metal3.io/v1alpha1
kind: OSImage
metadata: {name: ` + name + `}
spec:
  properties:
    metal3.vcluster.com/image-url: ` + url + `
    metal3.vcluster.com/image-checksum: d41d8cd98f00b204e9800998ecf8427e
`
	}
	installs := func(machine, want string) {
		t.Helper()
		if _, host, _ := w.installed(machine); host.Spec.Image.URL != want {
			t.Errorf("Machine %s gets %s, want %s", machine, host.Spec.Image.URL, want)
		}
	}
	w.installedFrom(spec, "running")
	installs("running", old)
	w.apply(image("ubuntu-noble-gpu", edited))
	// 1. Create a new OSImage. 2. Update the node type.
	w.apply(image("ubuntu-noble-gpu-2", next))
	w.nodeTypes(strings.ReplaceAll(oneTypePerProfile, "os-image: ubuntu-noble-gpu", "os-image: ubuntu-noble-gpu-2"))
	poll.Eventually(t, "the manager knows that the node type refers to the new image", func(ctx context.Context) error {
		nodeType := w.nodeType("h100-8x", 3)
		synced := meta.FindStatusCondition(nodeType.Status.Conditions, v1alpha1.ConditionSynced)
		if got := nodeType.Spec.Properties[v1alpha1.PropertyOSImage]; got != "ubuntu-noble-gpu-2" || synced == nil ||
			synced.ObservedGeneration != nodeType.Generation {
			return fmt.Errorf("it refers to %s, and its condition is %+v", got, synced)
		}
		return nil
	})
	w.installedFrom(spec, "next")
	installs("next", next)
	// The manager processes images in order, so it has seen the edited one too.
	installs("running", old)
}

// installedFrom makes a Machine and waits until it is being installed.
func (w *fixture) installedFrom(spec, name string) (*v1alpha1.Machine, *bmov1alpha1.BareMetalHost, map[string][]byte) {
	w.t.Helper()
	w.standAlone(name, spec, "has its server", hasServer)
	return w.installed(name)
}
