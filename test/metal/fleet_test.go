// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package metal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

const nodeTypeName = "gpu"

// registerServers registers the servers with Metal3, with the credentials of their BMCs.
func (w *stackFixture) registerServers(t *testing.T) {
	t.Helper()
	for _, server := range w.Rack.Servers {
		kind := nodeTypeName
		if server.Name == bareServer {
			kind = bareKind
		}
		if err := w.Register(t.Context(), server, map[string]string{kindLabel: kind}); err != nil {
			t.Fatal(err)
		}
	}
}

func isBroken(server scenario.Server) bool { return len(server.Faults) > 0 }

// inOrder is the number of servers without a fault.
func (w *stackFixture) inOrder() int {
	count := 0
	for _, server := range w.Rack.Servers {
		if !isBroken(server) {
			count++
		}
	}
	return count
}

// createTenant creates the NodePool and the node class of a tenant.
func (w *stackFixture) createTenant(t *testing.T) {
	t.Helper()
	w.create(t, w.tenant.Client, &v1alpha1.MetalNodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       v1alpha1.MetalNodeClassSpec{ProviderRef: &v1alpha1.NameReference{Name: providerName}},
	})
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: v1alpha1.Group, Kind: "MetalNodeClass", Name: "default"}
	pool.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeTypeName}},
	}
	pool.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
	pool.Spec.Disruption = karpv1.Disruption{
		// Short, to save time. Real servers need 30m and more.
		ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty, ConsolidateAfter: karpv1.MustParseNillableDuration("2s"),
		Budgets: []karpv1.Budget{{Nodes: "100%"}},
	}
	w.create(t, w.tenant.Client, pool)
	w.until(t, "the NodePool to be ready", func(ctx context.Context) error {
		if err := w.tenant.Client.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		if root := pool.StatusConditions().Root(); !root.IsTrue() {
			return fmt.Errorf("it is not ready: %s", root.Message)
		}
		return nil
	})
}

// createDeployment creates a Deployment of one pod.
func (w *stackFixture) createDeployment(t *testing.T, name, count string) {
	t.Helper()
	labels := map[string]string{"app": name}
	w.create(t, w.tenant.Client, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: workload(gpus(count))},
		},
	})
}

// untilDeploymentRuns waits until a pod of a Deployment runs on a node other than the given one, and returns its name.
func (w *stackFixture) untilDeploymentRuns(t *testing.T, name, notOn string) (pod string) {
	t.Helper()
	w.until(t, "a pod of Deployment "+name+" to run", func(context.Context) error {
		last := errors.New("there is none")
		for _, object := range w.journal.list() {
			found, is := object.(*corev1.Pod)
			if !is || found.Labels["app"] != name {
				continue
			}
			if found.Status.Phase == corev1.PodRunning && found.DeletionTimestamp == nil && found.Spec.NodeName != notOn {
				pod = found.Name
				return nil
			}
			last = fmt.Errorf("pod %s is %s", found.Name, describePod(found))
		}
		return last
	})
	return pod
}

// setImage changes the image of the NodeType.
func (w *stackFixture) setImage(t *testing.T, image string) {
	t.Helper()
	provider := &v1alpha1.NodeProvider{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: providerName}, provider); err != nil {
		t.Fatal(err)
	}
	before := provider.DeepCopy()
	provider.Spec.Properties[v1alpha1.PropertyOSImage] = image
	if err := w.Client.Patch(t.Context(), provider, client.MergeFrom(before)); err != nil {
		t.Fatalf("setting the image of the NodeType to %s, %v", image, err)
	}
}

func (w *stackFixture) remove(t *testing.T, object client.Object, name string) {
	t.Helper()
	object.SetNamespace(metav1.NamespaceDefault)
	object.SetName(name)
	if err := w.tenant.Client.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatalf("deleting %T %s, %v", object, name, err)
	}
}

func (w *stackFixture) nodeOf(t *testing.T, name string) string {
	t.Helper()
	pod, err := look[*corev1.Pod](w.journal, name)
	if err != nil {
		t.Fatal(err)
	}
	return pod.Spec.NodeName
}

// checkPod reads the pod's log through the tenant's API server: it must have the node, and GPUs of that node's server.
// The node must show the image that Ironic wrote.
func (w *stackFixture) checkPod(t *testing.T, name string, gpus int, image stack.Image) {
	t.Helper()
	log := w.podLog(t, w.kube, name)
	w.logf("the log of pod %s, read through the tenant's API server: %s", name, log)
	machine := w.machineOf(t, w.nodeOf(t, name))
	if want := fmt.Sprintf("pod %s on node %s with accelerators ", name, w.nodeOf(t, name)); !strings.Contains(log, want) {
		t.Errorf("the log of pod %s is %q, want %q in it", name, log, want)
	}
	_, last, _ := strings.Cut(log, "workload: ") // after the environment, if the pod prints that
	if got := strings.Count(last, "GPU-"+machine.Status.HostRef.Name+"-H100-"); got != gpus {
		t.Errorf("the log of pod %s is %q, want %d GPUs of server %s in it", name, log, gpus, machine.Status.HostRef.Name)
	}
	node, err := look[*corev1.Node](w.journal, w.nodeOf(t, name))
	if err != nil {
		t.Fatal(err)
	}
	if want := "image " + w.expectedOSImage(t, machine.Status.HostRef.Name, image); !strings.HasSuffix(node.Status.NodeInfo.OSImage, want) {
		t.Errorf("node %s has osImage %q, want one that ends with %q", node.Name, node.Status.NodeInfo.OSImage, want)
	}
	host, err := w.Host(t.Context(), machine.Status.HostRef.Name)
	if err != nil {
		t.Fatal(err)
	}
	if host.Spec.Image == nil || host.Spec.Image.URL != image.URL {
		t.Errorf("server %s is installed with %+v, want %s", host.Name, host.Spec.Image, image.URL)
	}
}

// machineOf returns the Machine of a node.
func (w *stackFixture) machineOf(t *testing.T, name string) *v1alpha1.Machine {
	t.Helper()
	node, err := look[*corev1.Node](w.journal, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range w.journal.list() {
		machine, is := object.(*v1alpha1.Machine)
		if is && machine.Status.ProviderID == node.Spec.ProviderID && machine.Status.HostRef != nil {
			return machine
		}
	}
	t.Fatalf("no Machine has the provider ID %q of node %s", node.Spec.ProviderID, name)
	return nil
}
