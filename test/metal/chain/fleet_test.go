// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/emulator/scenario"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/images"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/stack"
)

const (
	nodeTypeName = "gpu"
	kindLabel    = "kind"
	providerName = "metal3-provider" // as on the pages of the docs
)

// registerServers registers the servers with Metal3, with the credentials of their BMCs.
func (w *fixture) registerServers(t *testing.T) {
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

// createFleet creates the objects of a platform team: OSImages, and a NodeType of servers with two GPUs, with the first image.
func (w *fixture) createFleet(t *testing.T, osImages ...stack.Image) {
	t.Helper()
	nodeType := v1alpha1.NodeTypeTemplate{}
	nodeType.Resources = env.Resources("cpu", "64", "memory", "512Gi", gpu, "2")
	w.createFleetOf(t, nodeType, osImages...)
}

func (w *fixture) createFleetOf(t *testing.T, nodeType v1alpha1.NodeTypeTemplate, osImages ...stack.Image) {
	t.Helper()
	for i, image := range osImages {
		w.create(t, w.Client, &v1alpha1.OSImage{ObjectMeta: metav1.ObjectMeta{Name: imageName(i)}, Spec: v1alpha1.OSImageSpec{
			Properties: map[string]string{v1alpha1.PropertyImageURL: image.URL, v1alpha1.PropertyImageChecksum: image.Checksum},
		}})
	}
	provider := &v1alpha1.NodeProvider{ObjectMeta: metav1.ObjectMeta{Name: providerName}}
	provider.Spec.Properties = map[string]string{
		v1alpha1.PropertyOSImage: imageName(0),
		// This machine has the host part of the network, so it is the gateway.
		v1alpha1.PropertyNetworkCIDR: w.network.Address.String(),
	}
	provider.Spec.Metal3.ClusterRef.Namespace = stack.HostsNamespace
	nodeType.Name = nodeTypeName
	nodeType.BareMetalHosts = env.HostsWith(map[string]string{kindLabel: nodeTypeName})
	provider.Spec.Metal3.NodeTypes = []v1alpha1.NodeTypeTemplate{nodeType}
	w.create(t, w.Client, provider)
}

func imageName(i int) string { return fmt.Sprintf("linux-%d", i+1) }

func isBroken(server scenario.Server) bool { return len(server.Faults) > 0 }

// inOrder is the number of servers without a fault.
func (w *fixture) inOrder() int {
	count := 0
	for _, server := range w.Rack.Servers {
		if !isBroken(server) {
			count++
		}
	}
	return count
}

// createTenant creates the NodePool and the node class of a tenant.
func (w *fixture) createTenant(t *testing.T) {
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

func (w *fixture) create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("creating %T %s, %v", object, object.GetName(), err)
	}
}

// workload is a pod that requests GPUs and logs its node and their IDs.
func workload(gpus string) corev1.PodSpec {
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(bool),
		// It ends at once on SIGTERM.
		TerminationGracePeriodSeconds: ptr.To(int64(5)),
		Containers: []corev1.Container{{
			Name: "workload", Image: images.Reference(images.Workload), ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: resource.MustParse(gpus)}},
			Env: []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"},
			}}},
		}},
	}
}

// createPod creates a pod without a controller.
func (w *fixture) createPod(t *testing.T, name, gpus string) {
	t.Helper()
	w.create(t, w.tenant.Client, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Spec: workload(gpus),
	})
}

// createDeployment creates a Deployment of one pod.
func (w *fixture) createDeployment(t *testing.T, name, gpus string) {
	t.Helper()
	labels := map[string]string{"app": name}
	w.create(t, w.tenant.Client, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: workload(gpus)},
		},
	})
}

// untilDeploymentRuns waits until a pod of a Deployment runs on a node other than the given one, and returns its name.
func (w *fixture) untilDeploymentRuns(t *testing.T, name, notOn string) (pod string) {
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
func (w *fixture) setImage(t *testing.T, image string) {
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

func (w *fixture) remove(t *testing.T, object client.Object, name string) {
	t.Helper()
	object.SetNamespace(metav1.NamespaceDefault)
	object.SetName(name)
	if err := w.tenant.Client.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatalf("deleting %T %s, %v", object, name, err)
	}
}

func (w *fixture) nodeOf(t *testing.T, name string) string {
	t.Helper()
	pod, err := look[*corev1.Pod](w.journal, name)
	if err != nil {
		t.Fatal(err)
	}
	return pod.Spec.NodeName
}

// checkPod reads the pod's log through the tenant's API server: it must have the node, and GPUs of that node's server.
// The node must show the image that Ironic wrote.
func (w *fixture) checkPod(t *testing.T, name string, gpus int, image stack.Image) {
	t.Helper()
	stream, err := w.kube.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(name, &corev1.PodLogOptions{}).Stream(t.Context())
	if err != nil {
		t.Fatalf("reading the log of pod %s, %v", name, err)
	}
	defer func() { _ = stream.Close() }() // the log was read completely
	content, err := io.ReadAll(stream)
	if err != nil {
		t.Fatalf("reading the log of pod %s, %v", name, err)
	}
	log := strings.TrimSpace(string(content))
	w.journal.logf("the log of pod %s, read through the tenant's API server: %s", name, log)
	machine := w.machineOf(t, w.nodeOf(t, name))
	if want := fmt.Sprintf("pod %s on node %s with accelerators ", name, w.nodeOf(t, name)); !strings.Contains(log, want) {
		t.Errorf("the log of pod %s is %q, want %q in it", name, log, want)
	}
	if got := strings.Count(log, "GPU-"+machine.Status.HostRef.Name+"-H100-"); got != gpus {
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
func (w *fixture) machineOf(t *testing.T, name string) *v1alpha1.Machine {
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
