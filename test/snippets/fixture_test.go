// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

package snippets

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/pkg/apis/v1alpha1"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/env"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/poll"
)

// hosts is the namespace of the reference's servers, tenant that of the tenant's Machines.
const (
	hosts  = "metal3-system"
	tenant = "team-a"
)

// environment is the API server of all tests. Each test starts without the objects of the previous one.
var environment = &env.Environment{}

func TestMain(m *testing.M) { env.Main(m, environment) }

// fixture is an API server with the manager, and the tenant's provider if a test starts it.
type fixture struct {
	*env.Environment
	t *testing.T
}

// newFixture starts the manager, and creates an OSImage and the servers of the page.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{Environment: environment, t: t}
	for _, namespace := range []string{hosts, tenant} {
		err := w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: namespace, Labels: map[string]string{v1alpha1.StandAloneMachinesLabelKey: v1alpha1.StandAloneMachinesLabelValue},
		}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	w.deleteAll()
	w.apply(`
apiVersion: karpenter.metal3.io/v1alpha1
kind: OSImage
metadata: {name: ubuntu-noble-gpu}
spec:
  properties:
    metal3.vcluster.com/image-url: https://images.example.com/noble.qcow2
    metal3.vcluster.com/image-checksum: d41d8cd98f00b204e9800998ecf8427e
`)
	w.Grant(t, tenant, "manager.yaml")
	w.run("manager", "--kubeconfig", w.Kubeconfig(t, "karpenter-metal3-manager"), "--leader-elect=false", "--metrics-bind-address=0",
		"--health-probe-bind-address=0")
	return w
}

// deleteAll deletes what another test has left: the policies of the provider, all objects of the kinds that were defined, the pods,
// and the secrets. The programs of that test have ended, so nothing waits for finalizers.
func (w *fixture) deleteAll() {
	w.t.Helper()
	for _, kind := range []string{"ValidatingAdmissionPolicyBindingList", "ValidatingAdmissionPolicyList"} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("admissionregistration.k8s.io/v1")
		list.SetKind(kind)
		w.deleteListed(list)
	}
	definitions := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := w.Client.List(w.t.Context(), definitions); err != nil {
		w.t.Fatal(err)
	}
	for _, definition := range definitions.Items {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(definition.Spec.Group + "/" + definition.Status.StoredVersions[0])
		list.SetKind(definition.Spec.Names.ListKind)
		w.deleteListed(list)
	}
	for kind, namespaces := range map[string][]string{"PodList": {metav1.NamespaceDefault},
		"SecretList": {hosts, tenant, metav1.NamespaceSystem}} {
		for _, namespace := range namespaces {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion("v1")
			list.SetKind(kind)
			w.deleteListed(list, client.InNamespace(namespace))
		}
	}
}

// deleteListed deletes all objects of a kind, and removes their finalizers.
func (w *fixture) deleteListed(list *unstructured.UnstructuredList, options ...client.ListOption) {
	w.t.Helper()
	if err := w.Client.List(w.t.Context(), list, options...); err != nil {
		w.t.Fatal(err)
	}
	for _, object := range list.Items {
		poll.Eventually(w.t, fmt.Sprintf("%s %s is deleted", object.GetKind(), object.GetName()), func(ctx context.Context) error {
			if len(object.GetFinalizers()) > 0 {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				// For a moment the API server still knows the policies.
				if err := client.IgnoreNotFound(w.Client.Patch(ctx, object.DeepCopy(), patch)); err != nil {
					return err
				}
			}
			return client.IgnoreNotFound(w.Client.Delete(ctx, object.DeepCopy(), client.GracePeriodSeconds(0)))
		})
	}
}

// binary returns the path of one of the programs in bin.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "bin", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%s is not built: run make build, %v", name, err)
	}
	return path
}

// startProvider starts the provider of the tenant, which must exist.
func (w *fixture) startProvider() {
	w.t.Helper()
	w.Grant(w.t, tenant, "provider-management.yaml", "provider-dra-management.yaml", "provider-tenant.yaml", "provider-dra-tenant.yaml")
	kubeconfig := w.Kubeconfig(w.t, "karpenter-metal3-provider")
	w.run("provider", "--tenant-kubeconfig", kubeconfig, "--tenant-allow-unsafe-kubeconfig", // which impersonates
		"--management-kubeconfig", kubeconfig,
		"--namespace", tenant, "--tenant-cluster", tenant, "--leader-elect=false", "--batch-idle-duration=100ms", "--metrics-bind-address=0")
}

// run starts a program that is stopped when the test ends. If the test has failed, the end of its log is shown.
func (w *fixture) run(name string, arguments ...string) {
	w.t.Helper()
	output, command := &bytes.Buffer{}, exec.Command(binary(w.t, name), arguments...)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := command.Process.Kill(); err != nil {
			w.t.Errorf("stopping the %s, %v", name, err)
		}
		_ = command.Wait() // it was killed
		if w.t.Failed() {
			w.t.Logf("the %s said:\n%s", name, output.Bytes()[max(0, output.Len()-4000):])
		}
	})
}

// shell runs a command of a page. kubectl is bin/kubectl with the API server of this test.
func (w *fixture) shell(line string) {
	w.t.Helper()
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		w.t.Fatal(err)
	}
	command := exec.CommandContext(w.t.Context(), "sh", "-c", line)
	command.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "KUBECONFIG="+w.Kubeconfig(w.t, ""))
	if out, err := command.CombinedOutput(); err != nil {
		w.t.Fatalf("%s\n%v:\n%s", line, err, out)
	}
}

// apply creates or replaces an object, which may have no field that its kind does not know.
func (w *fixture) apply(document string) {
	w.t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
		w.t.Fatal(err)
	}
	strict := client.WithFieldValidation(w.Client, metav1.FieldValidationStrict)
	// The provider and the manager write it, too.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		existing := &unstructured.Unstructured{}
		existing.SetGroupVersionKind(object.GroupVersionKind())
		if err := w.Client.Get(w.t.Context(), client.ObjectKeyFromObject(object), existing); apierrors.IsNotFound(err) {
			return strict.Create(w.t.Context(), object)
		} else if err != nil {
			return err
		}
		object.SetResourceVersion(existing.GetResourceVersion())
		object.SetFinalizers(existing.GetFinalizers())
		return strict.Update(w.t.Context(), object)
	})
	if err != nil {
		w.t.Fatalf("applying %s %s, %v", object.GetKind(), object.GetName(), err)
	}
}

// indented indents a fragment for its context.
func indented(spaces int, fragment string) string {
	return strings.ReplaceAll("\n"+strings.Trim(fragment, "\n"), "\n", "\n"+strings.Repeat(" ", spaces))
}

// nodeTypes applies the nodeTypes of a page as those of the NodeProvider.
func (w *fixture) nodeTypes(fragment string) {
	w.t.Helper()
	w.apply(`
apiVersion: karpenter.metal3.io/v1alpha1
kind: NodeProvider
metadata: {name: metal3-provider}
spec:
  metal3:
    clusterRef: {namespace: metal3-system}` + indented(4, fragment))
}

// tenantCluster applies the privateNodes of a page as those of the TenantCluster.
func (w *fixture) tenantCluster(fragment string) {
	w.t.Helper()
	w.apply(`
apiVersion: karpenter.metal3.io/v1alpha1
kind: TenantCluster
metadata: {name: team-a, namespace: team-a}
spec:
  apiServerEndpoint: 192.0.2.1:6443
  standAloneMachines: Allowed` + indented(2, fragment))
}

// server registers a server with labels: "gpu-model=h100".
func (w *fixture) server(name string, labels ...string) {
	w.t.Helper()
	set := map[string]string{}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		set[key] = value
	}
	w.CreateHost(w.t, env.AvailableHost(hosts, name, set))
}

// nodeType waits until the manager has counted the servers of a type, and returns it.
func (w *fixture) nodeType(name string, total int32) *v1alpha1.NodeType {
	w.t.Helper()
	nodeType := &v1alpha1.NodeType{}
	poll.Eventually(w.t, fmt.Sprintf("NodeType %s has %d servers", name, total), func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, nodeType); err != nil {
			return err
		}
		if got := nodeType.Status.Capacity.Total; got != total {
			return fmt.Errorf("it has %d", got)
		}
		return nil
	})
	return nodeType
}

// claimed returns the servers that have a consumer, by name.
func (w *fixture) claimed(ctx context.Context) (map[string]string, error) {
	list, claimed := &bmov1alpha1.BareMetalHostList{}, map[string]string{}
	if err := w.Client.List(ctx, list, client.InNamespace(hosts)); err != nil {
		return nil, err
	}
	for _, host := range list.Items {
		if host.Spec.ConsumerRef != nil {
			claimed[host.Name] = host.Spec.ConsumerRef.Name
		}
	}
	return claimed, nil
}

// awaitClaimed waits until so many servers are claimed.
func (w *fixture) awaitClaimed(count int) map[string]string {
	w.t.Helper()
	var claimed map[string]string
	poll.Eventually(w.t, fmt.Sprintf("%d servers are claimed", count), func(ctx context.Context) error {
		var err error
		if claimed, err = w.claimed(ctx); err == nil && len(claimed) != count {
			err = fmt.Errorf("claimed are %v", claimed)
		}
		return err
	})
	return claimed
}

// standAlone creates a Machine with the spec, and waits until check returns no error.
func (w *fixture) standAlone(name, spec, what string, check func(*v1alpha1.Machine) bool) *v1alpha1.Machine {
	w.t.Helper()
	w.apply("{apiVersion: karpenter.metal3.io/v1alpha1, kind: Machine, metadata: {name: " + name + ", namespace: team-a}, spec: " + spec + "}")
	machine := &v1alpha1.Machine{}
	poll.Eventually(w.t, "Machine "+name+" "+what, func(ctx context.Context) error {
		if err := w.Client.Get(ctx, client.ObjectKey{Namespace: tenant, Name: name}, machine); err != nil {
			return err
		}
		if !check(machine) {
			return fmt.Errorf("its status is %+v", machine.Status)
		}
		return nil
	})
	return machine
}
