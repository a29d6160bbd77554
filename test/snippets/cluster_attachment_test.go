// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package snippets

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

const gpuNodes = `
nodeTypes:
- name: gpu-node
  resources: {cpu: "96", memory: 768Gi, nvidia.com/gpu: "8"}
  properties: {vcluster.com/os-image: ubuntu-noble-gpu}
  bareMetalHosts: {selector: {matchLabels: {gpu-model: h100}}}
`

const privateNodes = `
privateNodes:
  enabled: true
  autoNodes:
  - provider: metal3-provider
    static:
    - name: gpu-nodes
      quantity: 2
      nodeTypeSelector:
      - property: vcluster.com/node-type
        value: gpu-node
`

// machines returns the Machines that are not being deleted.
func (w *fixture) machines(ctx context.Context) ([]v1alpha1.Machine, error) {
	list := &v1alpha1.MachineList{}
	if err := w.Client.List(ctx, list, client.InNamespace(tenant)); err != nil {
		return nil, err
	}
	var staying []v1alpha1.Machine
	for _, machine := range list.Items {
		if machine.DeletionTimestamp.IsZero() {
			staying = append(staying, machine)
		}
	}
	return staying, nil
}

func (w *fixture) awaitMachines(count int) []v1alpha1.Machine {
	w.t.Helper()
	var machines []v1alpha1.Machine
	poll.Eventually(w.t, fmt.Sprintf("there are %d Machines", count), func(ctx context.Context) error {
		var err error
		if machines, err = w.machines(ctx); err == nil && len(machines) != count {
			err = fmt.Errorf("there are %d", len(machines))
		}
		return err
	})
	return machines
}

func TestClusterAttachmentConfiguringPrivateNodes(t *testing.T) {
	w := newFixture(t)
	w.nodeTypes(gpuNodes)
	for _, name := range []string{"server-00", "server-01", "server-02"} {
		w.server(name, "gpu-model=h100")
	}
	w.nodeType("gpu-node", 3)
	w.tenantCluster(privateNodes)
	w.startProvider()
	w.awaitClaimed(2)
	w.awaitMachines(2)
	// "Creates and deletes Machines to match the requested quantity."
	w.tenantCluster(strings.Replace(privateNodes, "quantity: 2", "quantity: 1", 1))
	w.awaitMachines(1)
	// "When ... the cluster is deleted, the platform deletes the Machine."
	cluster := &v1alpha1.TenantCluster{}
	cluster.Namespace, cluster.Name = tenant, tenant
	if err := w.Client.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	w.awaitMachines(0)
}

// oneGPU is the request for a GPU on both pages.
const oneGPU = `
resources:
  limits:
    nvidia.com/gpu: "1"
`

func TestClusterAttachmentNodeResources(t *testing.T) { podGetsServer(t, oneGPU) }

// podGetsServer creates an unschedulable pod with the resources of a page, and waits until a server is claimed for it.
func podGetsServer(t *testing.T, resources string) {
	t.Helper()
	w := newFixture(t)
	w.nodeTypes(gpuNodes)
	w.server("server-00", "gpu-model=h100")
	w.nodeType("gpu-node", 1)
	w.tenantCluster(`
privateNodes:
  enabled: true
  autoNodes:
  - provider: metal3-provider
    dynamic:
    - name: gpu-nodes
`)
	w.startProvider()
	w.apply(`
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: default}
spec:
  containers:
  - name: main
    image: train` + indented(4, resources))
	pod := &corev1.Pod{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "train"}, pod); err != nil {
		t.Fatal(err)
	}
	// No scheduler runs here: this is its condition.
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable}}
	if err := w.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	w.awaitClaimed(1)
	if gpus := w.awaitMachines(1)[0].Spec.Resources["nvidia.com/gpu"]; gpus.Value() != 1 {
		t.Errorf("the Machine asks for %s GPUs, want 1", gpus.String())
	}
}
